"""Cache keys, derived from values and never listed by hand.

A key is the sha256 of a canonical rendering of the problem (only the fields that can change the
plan of that direction), the graph described for it, the device's facts, the library versions and
the sources of the cuDNN backend, so that a repaired builder never serves an old plan. Stable
across processes and machines.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import resources

from .config import plan_environment
from .cudnn.f16 import describe
from .device import DeviceSpec
from .plan import FORMAT
from .problem import AttentionProblem, Direction


def render(value: object) -> str:
    """A text that is equal exactly for equal values; raises for types without a canonical form."""
    if is_dataclass(value) and not isinstance(value, type):
        compared = (field for field in fields(value) if field.compare)
        inner = ",".join(f"{f.name}={render(getattr(value, f.name))}" for f in compared)
        return f"{type(value).__name__}({inner})"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, tuple):
        return f"({','.join(render(item) for item in value)},)"
    if value is None or isinstance(value, (bool, int, str, float)):
        return repr(value)
    raise TypeError(f"{type(value).__name__} has no canonical rendering; give it fields")


@cache
def builder_revision() -> str:
    """sha256 of all sources of the cuDNN backend."""
    folder = resources.files(__package__) / "cudnn"
    digest = sha256()
    for source in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if source.name.endswith(".py"):
            digest.update(source.read_bytes())
    return digest.hexdigest()


def fingerprint(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction, frontend_version: str
) -> str:
    """The key of a plan: 64 hexadecimal digits."""
    problem = problem.for_direction(direction)
    text = render(
        (
            FORMAT,
            builder_revision(),
            plan_environment(),
            frontend_version,
            (device.sm, device.sm_count, device.cudnn_version),
            direction,
            problem,
            describe(problem, device, direction),
        )
    )
    return sha256(text.encode()).hexdigest()
