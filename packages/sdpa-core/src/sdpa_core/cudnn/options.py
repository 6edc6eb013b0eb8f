"""Options of an operation from the values of a problem."""

from __future__ import annotations

from ..mask import Alignment, Band
from ..problem import AttentionProblem, Direction

#: The implementation of the forward operation that knows cumulative lengths.
UNIFIED = "unified"


def band_options(band: Band) -> dict[str, object]:
    """cuDNN's spelling of a band.

    Its right bound counts as ours; its left bound counts the query's own position too, hence + 1
    (TransformerEngine fused_attn_f16_arbitrary_seqlen.cu passes left + 1).
    """
    if band.is_full:
        return {}
    options: dict[str, object] = {"diagonal_alignment": Alignment(band.alignment)}
    if band.right is not None:
        options["diagonal_band_right_bound"] = band.right
    if band.left is not None:
        options["diagonal_band_left_bound"] = band.left + 1
    return options


def direction_options(
    problem: AttentionProblem, direction: Direction, *, max_total_kv: bool
) -> dict[str, object]:
    """What only one of the two operations takes.

    Args:
        max_total_kv: whether the backward operation may be told the packed keys' tokens, by which
            it sizes its workspace.
    """
    if direction is Direction.FORWARD:
        return {"generate_stats": problem.needs_stats}
    options: dict[str, object] = {}
    if problem.deterministic:
        options["use_deterministic_algorithm"] = True
    if problem.packed_q is not None:
        options["max_total_seq_len_q"] = problem.packed_q.tokens
    if problem.packed_kv is not None and max_total_kv:
        options["max_total_seq_len_kv"] = problem.packed_kv.tokens
    return options
