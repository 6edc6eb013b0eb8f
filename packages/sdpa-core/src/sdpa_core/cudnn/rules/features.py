"""Rules about sinks and further results."""

from __future__ import annotations

from ...device import DeviceSpec
from ...problem import AttentionProblem, Direction, Softmax
from .rule import Reasons, needs


def sink(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """TransformerEngine's versions; cudnn-frontend asks for 9.13.0 in both cases."""
    if problem.softmax is not Softmax.VANILLA:
        since, what = (
            (91800, "a sink of packed sequences") if problem.is_packed else (91301, "a sink")
        )
        yield from needs(device, since, what)


def max_logit(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """TransformerEngine PR 3091. cuDNN 9.19 gives it only beside the sum of exponentials."""
    if problem.return_max_logit and direction is Direction.FORWARD:
        yield from needs(device, 92100, "max_logit")
