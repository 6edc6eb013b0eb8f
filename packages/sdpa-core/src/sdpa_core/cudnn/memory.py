"""Operands as they lie in the callers' memory, where that is not what the graph declares."""

from __future__ import annotations

from ..problem import AttentionProblem
from ..tensor import TensorSpec
from .graph import Operand

_QUERY_SIDE = frozenset(("query", "output", "grad_output", "grad_query", "stats", "max_logit"))


def on_query_side(role: str) -> bool:
    """Whether an operand has the queries' tokens, and not the keys'."""
    return role in _QUERY_SIDE


def memory_spec(operand: Operand, problem: AttentionProblem) -> TensorSpec:
    """The memory of an operand of ``problem``'s plan.

    Packed operands are ``[tokens, heads, head_dim]``, as many tokens as the problem's. Others are
    as the graph declares them; a result may then hold more sequences or rows than the problem has,
    see ``kept``.
    """
    if operand.ragged is None:
        return operand.spec
    packed = problem.packed_q if on_query_side(operand.role) else problem.packed_kv
    assert packed is not None, operand.role
    _, heads, _, head_dim = operand.shape
    _, per_head, per_token, per_element = operand.strides
    return TensorSpec(
        (packed.tokens, heads, head_dim), (per_token, per_head, per_element), operand.dtype
    )


def kept(operand: Operand, problem: AttentionProblem) -> tuple[int, int] | None:
    """How many sequences and rows of a dense result are the problem's; None: all of it.

    Only queries are declared with other rows than they have; keys that are dense never are.
    """
    if operand.ragged is not None or not on_query_side(operand.role):
        return None
    wanted = (problem.batch, problem.tokens_q)
    return None if (operand.shape[0], operand.shape[2]) == wanted else wanted
