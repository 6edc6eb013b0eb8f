"""One spelling for problems that mean the same, so that they share a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .mask import Band
from .softmax import Softmax

if TYPE_CHECKING:
    from .problem import AttentionProblem


def normalized(asked: AttentionProblem) -> AttentionProblem:
    """The problem with strides, lengths, mask and gradients in their one spelling."""
    bias, slopes = asked.bias, asked.alibi_slopes
    problem = replace(
        _with_lengths(asked),
        query=asked.query if asked.packed_q else asked.query.canonical(),
        key=asked.key if asked.packed_kv else asked.key.canonical(),
        value=asked.value if asked.packed_kv else asked.value.canonical(),
        bias=bias and bias.canonical(),
        alibi_slopes=slopes and slopes.canonical(),
        bias_grad=asked.bias_grad and bias is not None and asked.training,
        sink_grad=asked.sink_grad and asked.softmax is Softmax.LEARNABLE and asked.training,
    )
    return replace(problem, band=_band(problem))


def _with_lengths(asked: AttentionProblem) -> AttentionProblem:
    """cuDNN takes lengths of both sides or of none.

    So a dense side has them beside a packed one.
    """
    packed = asked.is_packed
    return replace(
        asked,
        seq_lens_q=asked.packed_q is None and (asked.seq_lens_q or packed),
        seq_lens_kv=asked.packed_kv is None
        and (asked.seq_lens_kv or packed or asked.paged is not None),
    )


def _band(problem: AttentionProblem) -> Band:
    tokens_q, tokens_kv = problem.tokens_q, problem.tokens_kv
    same_lengths = not problem.has_lengths
    # ALiBi measures distances from the diagonal, so with it the alignment keeps its meaning.
    has_slopes = problem.alibi or problem.alibi_slopes is not None
    if has_slopes and not (same_lengths and tokens_q == tokens_kv):
        return problem.band
    return problem.band.normalized(tokens_q, tokens_kv, same_lengths=same_lengths)
