"""Faults of the scale of the logits."""

from __future__ import annotations

from .. import oracle
from ..attention import Attended, Attention
from ..fault import Shown, against, fault
from ..inputs import Numbers
from ..machine import Machine

_REMEDY = {"held": "sdpa_core.validate", "remedy": "a factor of the query, and a positive scale"}


def _scaled(machine: Machine, remedied: bool, factor: float, scale: float) -> Shown:
    """A scale as it is, or as ``factor`` of the query, and of its gradient."""
    query, *others = Numbers(machine).dense(2, 4, 2, 128, 128, 64)
    want = oracle.attention(query, *others, factor * scale)
    if not remedied:
        return against(Attended(machine, Attention(query, *others, factor * scale)).run(), want)
    got = dict(Attended(machine, Attention(factor * query, *others, scale)).run())
    return against(got | {"dQ": factor * got["dQ"]}, want)


@fault("a scale of 0: NaN", **_REMEDY)
def scale_of_zero(machine: Machine, remedied: bool) -> Shown:
    return _scaled(machine, remedied, 0.0, 1.0)


@fault("a negative scale: NaN", **_REMEDY)
def negative_scale(machine: Machine, remedied: bool) -> Shown:
    return _scaled(machine, remedied, -1.0, 0.125)
