"""Rules about what hides or shifts logits: bands, ALiBi, bias."""

from __future__ import annotations

from ...device import DeviceSpec
from ...dtypes import DType
from ...mask import Alignment
from ...problem import AttentionProblem, Direction
from ...reasons import Unsupported
from .rule import Reasons


def bottom_right(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """A right bound from the bottom right goes with neither bias, ALiBi nor dropout.

    Where all sequences have the same lengths and no row is left without keys, the mask is aligned
    top left by then (``Band.normalized``).
    """
    band = problem.band
    if band.alignment is not Alignment.BOTTOM_RIGHT or band.right is None or problem.is_flex:
        return
    others = {
        "bias": problem.bias is not None,
        "alibi": problem.alibi,
        "dropout_p": problem.dropout_p > 0,
    }
    for name, given in others.items():
        if given:
            yield Unsupported(name, "given", f"none with the mask {band}", "align it top_left")


def alibi(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """cuDNN's own ALiBi is for masks that end at the diagonal; functions of logits have ours."""
    if problem.alibi and not problem.is_flex and problem.band.right != 0:
        given = f"True with the mask {problem.band}"
        yield Unsupported("alibi", given, "a causal mask", "give slopes instead")


def bias(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Its type and memory; other strides than 1 are not checked by cudnn-frontend (PR 823)."""
    if problem.bias is None:
        return
    if problem.bias.dtype not in (problem.query.dtype, DType.FLOAT32):
        yield Unsupported(
            "bias.dtype", problem.bias.dtype, f"{problem.query.dtype} or float32", "cast it"
        )
    if problem.bias.strides[-1] != 1:
        yield Unsupported("bias.stride(-1)", problem.bias.strides[-1], "1", "copy it")
