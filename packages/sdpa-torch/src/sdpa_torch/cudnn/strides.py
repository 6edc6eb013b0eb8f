"""How the operands of both directions lie in memory."""

from __future__ import annotations

from sdpa_core import AttentionProblem, TensorSpec
from sdpa_core.layout import Strides, row_major

#: What the forward pass keeps for the backward pass besides its operands.
SAVED = ("output", "stats")


def strides_of(problem: AttentionProblem) -> tuple[Strides, ...]:
    """Of the inputs, the output and the statistics, as they are in the forward pass."""
    packed_q, packed_kv = problem.packed_q is not None, problem.packed_kv is not None
    stats = problem.stats_shape
    described = {
        "query": _in_memory(problem.query, packed_q),
        "key": _in_memory(problem.key, packed_kv),
        "value": _in_memory(problem.value, packed_kv),
        "output": _in_memory(problem.output, packed_q),
        "stats": row_major((0, stats[1], 1) if packed_q else stats),
    }
    optional = {"bias": problem.bias, "alibi_slopes": problem.alibi_slopes}
    if problem.score_mod is not None:
        tensors = problem.score_mod.tensors
        optional |= {f"score_mod_{number}": spec for number, spec in enumerate(tensors)}
    if problem.paged is not None:
        optional["page_table_k"] = problem.paged.key_table
        optional["page_table_v"] = problem.paged.value_table
    described |= {role: spec.strides for role, spec in optional.items() if spec is not None}
    # The others have one axis and are dense.
    return tuple(described.get(role, (1,)) for role in (*problem.inputs, *SAVED))


def _in_memory(spec: TensorSpec, packed: bool) -> Strides:
    """Strides of the tensor itself: ``[tokens, heads, head_dim]`` if packed."""
    _, per_head, per_token, per_element = spec.strides
    return (per_token, per_head, per_element) if packed else spec.strides
