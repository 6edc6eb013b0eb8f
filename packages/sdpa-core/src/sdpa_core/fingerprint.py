"""Cache keys, derived from values and never listed by hand.

A key is the sha256 of a canonical rendering of the problem (only the fields that can change the
plan of that direction), the device's facts, the library versions and the builder's own source, so
that a repaired builder never serves an old plan. Stable across processes and machines.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import resources

from .config import settings
from .device import DeviceSpec
from .plan import FORMAT
from .problem import AttentionProblem, Direction

#: Sources that decide what a plan contains.
_BUILDER_SOURCES = ("f16", "graph", "known_bad", "lower", "operands", "options", "session", "uids")


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
    """sha256 of the sources that build graphs."""
    folder = resources.files(__package__) / "cudnn"
    digest = sha256()
    for name in _BUILDER_SOURCES:
        digest.update((folder / f"{name}.py").read_bytes())
    return digest.hexdigest()


def fingerprint(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction, frontend_version: str
) -> str:
    """The key of a plan: 64 hexadecimal digits."""
    text = render(
        (
            FORMAT,
            builder_revision(),
            settings().plan_environment,
            frontend_version,
            (device.sm, device.sm_count, device.cudnn_version),
            direction,
            problem.for_direction(direction),
        )
    )
    return sha256(text.encode()).hexdigest()
