"""Arguments of the public functions that no backend implements yet, and how they are refused.

Nothing is accepted and ignored: anything but None is a ``NoBackendError`` that says so. An argument
leaves this list when a backend, or the reference, implements it.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import NoBackendError
from .reasons import Unsupported

#: Arguments whose only implemented value is None.
PENDING = ("recipe",)


def pending_reasons(given: Mapping[str, object]) -> tuple[Unsupported, ...]:
    """A reason for each argument whose value is not implemented."""
    return tuple(
        Unsupported(name, _describe(value), "None", "not implemented yet")
        for name, value in given.items()
        if value is not None
    )


def refuse_pending(function: str, given: Mapping[str, object]) -> None:
    """Raise ``NoBackendError`` with all reasons if any argument of ``function`` is given."""
    reasons = pending_reasons(given)
    if reasons:
        lines = "\n".join(f"  {reason}" for reason in reasons)
        raise NoBackendError(f"{function}: no backend implements these arguments\n{lines}")


def _describe(value: object) -> object:
    shape = getattr(value, "shape", None)
    return f"an array of shape {list(shape)}" if shape is not None else value
