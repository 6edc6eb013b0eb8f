"""Cache keys, derived from values and never listed by hand.

A key is the sha256 of a canonical rendering of the problem (only the fields that can change the
plan of that direction), the graph described for it, the device's facts, the library versions and
the sources of the cuDNN backend, so that a repaired builder never serves an old plan. Stable
across processes and machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from .config import plan_environment
from .cudnn.builder import describe
from .cudnn.dimensions import declared
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
    """sha256 of all sources that make graphs."""
    package = resources.files(__package__)
    digest = sha256((package / "ragged.py").read_bytes())
    for folder in (package / "cudnn", package / "score_mod"):
        for source in _sources(folder):
            digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry


def fingerprint(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction, frontend_version: str
) -> str:
    """The key of a plan: 64 hexadecimal digits."""
    text = render(
        (
            FORMAT,
            builder_revision(),
            plan_environment(),
            frontend_version,
            (device.sm, device.sm_count, device.cudnn_version),
            direction,
            declared(problem, device, direction),
            describe(problem, device, direction),
        )
    )
    return sha256(text.encode()).hexdigest()
