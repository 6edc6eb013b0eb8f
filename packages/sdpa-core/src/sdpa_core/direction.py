"""Forward and backward: two plans of one problem, each of which depends on a part of its fields."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from .ragged import Packed, packed_like
from .tensor import TensorSpec

if TYPE_CHECKING:
    from .problem import AttentionProblem


class Direction(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


def narrowed(problem: AttentionProblem, direction: Direction) -> AttentionProblem:
    """The problem with the fields that cannot change ``direction``'s plan cleared."""
    return _forward(problem) if direction is Direction.FORWARD else _backward(problem)


def _forward(problem: AttentionProblem) -> AttentionProblem:
    return replace(
        problem,
        training=False,
        return_lse=problem.needs_stats,
        # Merging split keys is the one forward pass with an order to be fixed.
        deterministic=problem.deterministic and problem.is_decode and problem.needs_stats,
        bias_grad=False,
        sink_grad=False,
        grad_output=None,
    )


def _backward(problem: AttentionProblem) -> AttentionProblem:
    given = problem.grad_output
    same = given is None or given.canonical() == problem.output.canonical()
    return replace(
        problem,
        # Packed operands are read dense, as their gradients are written: interleaved ones gave
        # wrong gradients (H200, cuDNN 9.19; docs/decisions.md). So is the gradient of the output,
        # as the output is.
        query=_dense_if(problem.packed_q, problem.query),
        key=_dense_if(problem.packed_kv, problem.key),
        value=_dense_if(problem.packed_kv, problem.value),
        training=True,
        return_lse=False,
        return_max_logit=False,
        grad_output=None if given is None or same or problem.packed_q else given.canonical(),
    )


def _dense_if(packed: Packed | None, spec: TensorSpec) -> TensorSpec:
    return spec if packed is None else packed_like(spec, spec.shape)
