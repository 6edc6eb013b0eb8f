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
    without = f"none with the mask {band}"
    if problem.bias is not None:
        got = "given (as bias, mask or attn_mask)"
        yield Unsupported(
            "bias", got, without, f"hide the same keys with the bias alone{_OR_ALIGN}"
        )
    if problem.alibi:
        yield Unsupported("alibi", True, without, f"{_slopes(problem)}{_OR_ALIGN}")
    if problem.dropout_p > 0:
        yield Unsupported("dropout_p", problem.dropout_p, without, f"dropout_p=0{_OR_ALIGN}")


_OR_ALIGN = ", or causal_alignment='top_left' if that is meant"


def alibi(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """cuDNN's own ALiBi is for masks that end at the diagonal; functions of logits have ours."""
    if problem.alibi and not problem.is_flex and problem.band.right != 0:
        got = f"True with the mask {problem.band}"
        yield Unsupported("alibi", got, "a causal mask", _slopes(problem))


def _slopes(problem: AttentionProblem) -> str:
    """The way round: slopes that are given become a function of the logits, with any mask.

    Such a function has neither packed sequences, nor pages, nor, so far, a bias with a gradient.
    """
    first = ""
    if problem.paged is not None or problem.is_packed:
        first = "dense operands with their lengths, and "
    last = " and a bias without a gradient" if problem.bias_grad else ""
    return f"{first}alibi=slopes, a tensor of sdpa_core.alibi.alibi_slopes({problem.heads}){last}"


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
