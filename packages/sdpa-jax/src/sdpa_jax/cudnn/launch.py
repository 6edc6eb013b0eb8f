"""One direction of a problem on cuDNN: operands prepared, plan launched, results put right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from sdpa_core import AttentionProblem, DeviceSpec, Direction, Plan
from sdpa_core.cudnn.graph import Operand
from sdpa_core.cudnn.known_bad import Remedy, faults
from sdpa_core.cudnn.memory import on_query_side
from sdpa_core.problem import Softmax

from ..sequences import Sequences
from . import operands
from .runtime import Runtime

#: What a plan reads of rows that belong to no sequence: 0 times a NaN there would be a NaN in rows
#: that do (H200, cuDNN 9.19: NaN in keys and values past a length reach the output and gradients).
_READ_PAST_THE_END = ("key", "value")
#: The same in the backward pass alone: they reach the gradients of key and value.
_READ_BACKWARD = ("query", "grad_output")

_Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Launch:
    """What is fixed when a program is lowered.

    Attributes:
        problem: whose tensors are ``[B, H, S, D]`` with the strides of ``[B, T, N, H]`` arrays.
        spec: the device to plan for.
        direction: which pass.
        runtime: who plans and launches.
        scalars: the scale, then the numbers that ``score_mod`` takes.
        slack_is_finite: rows of no sequence hold finite numbers.
    """

    problem: AttentionProblem
    spec: DeviceSpec
    direction: Direction
    runtime: Runtime
    scalars: tuple[float, ...]
    slack_is_finite: bool

    def run(self, arrays: _Arrays) -> dict[str, Array]:
        """Results by role, of arrays by role, both as ``calls`` describes them."""
        plan = self.runtime.plan(self.problem, self.spec, self.direction)
        sides = _Sides(self.problem, arrays)
        readable = arrays if self.slack_is_finite else sides.without_slack(arrays)
        memory = self.runtime.execute(
            plan,
            [operands.given(operand, self.problem, readable) for operand in plan.inputs],
            [operands.described(operand, self.problem) for operand in plan.outputs],
            [self._scalar(operand) for operand in plan.scalars],
        )
        found = {
            operand.role: operands.result(operand, self.problem, array, arrays)
            for operand, array in zip(plan.outputs, memory, strict=True)
        }
        if self._must_fix_empty:
            found = sides.with_empty_sequences(found)
        return sides.finished(found, plan)

    @property
    def _must_fix_empty(self) -> bool:
        rows = faults(self.problem, self.spec, self.direction)
        return any(row.remedy is Remedy.FIX_EMPTY for row in rows)

    def _scalar(self, operand: Operand) -> float:
        if operand.constant is not None:
            return operand.constant
        if operand.role == "scale":
            return self.scalars[0]
        return self.scalars[1 + int(operand.role.removeprefix("score_mod_scalar_"))]


class _Sides:
    """The sequences of both sides of a problem, and what they mean for operands and results."""

    def __init__(self, problem: AttentionProblem, arrays: _Arrays) -> None:
        self._problem = problem
        self._arrays = arrays
        self._queries = Sequences.of_queries(problem, arrays)
        self._keys = Sequences.of_keys(problem, arrays)

    def without_slack(self, arrays: _Arrays) -> dict[str, Array]:
        """Copies with zeros in rows of no sequence.

        Pages are shared, and stay as they are. So do packed operands: neither gaps nor neighbouring
        sequences reach a result, whatever they hold (H200, cuDNN 9.19).
        """
        cleared = dict(arrays)
        backward = "grad_output" in arrays
        for role in _READ_PAST_THE_END + (_READ_BACKWARD if backward else ()):
            side = self._side(role)
            pages = side is self._keys and self._problem.paged is not None
            if not pages and not side.is_packed:
                cleared[role] = side.cleared(arrays[role])
        return cleared

    def with_empty_sequences(self, found: _Arrays) -> dict[str, Array]:
        """Results with those of sequences without keys overwritten.

        They are NaN in cuDNN before 9.25. Lengths are known on the device only.
        """
        if self._keys.lengths is None:
            return dict(found)
        empty = self._queries.by_row(self._keys.lengths == 0)
        alone = self._stats_without_keys()
        fixed = dict(found)
        for role in ("output", "grad_query"):
            if role in found:
                fixed[role] = jnp.where(empty[..., None, None], 0, found[role])
        for role, filling in (("stats", alone), ("max_logit", jnp.asarray(-jnp.inf))):
            if role in found:
                fixed[role] = self._where_rows(empty, filling.astype(jnp.float32), found[role])
        for role in ("grad_key", "grad_value"):
            if role in found:
                fixed[role] = self._keys.cleared(found[role])
        return fixed

    def finished(self, found: _Arrays, plan: Plan) -> dict[str, Array]:
        """Results with 0 or -inf in rows of no sequence, and the largest logits of each head."""
        finished = dict(found)
        for operand in plan.outputs:
            role = operand.role
            if operand.ragged is not None and not operand.zero_fill:
                finished[role] = self._side(role).cleared(finished[role])
        exist = self._queries.exist()
        if exist is not None:
            for role in ("stats", "max_logit"):
                if role in found:
                    hidden = jnp.asarray(-jnp.inf, jnp.float32)
                    finished[role] = self._where_rows(~exist, hidden, found[role])
        if "grad_bias" in found:
            finished["grad_bias"] = _like(self._arrays["bias"], found["grad_bias"])
        if "max_logit" in found:
            largest = finished["max_logit"]
            packed = self._queries.is_packed
            finished["max_logit"] = largest.max(0, keepdims=True) if packed else largest.max(2)
        return finished

    def _side(self, role: str) -> Sequences:
        return self._queries if on_query_side(role) else self._keys

    def _where_rows(self, rows: Array, filling: Array, array: Array) -> Array:
        """``filling``, maybe of each head, in rows of ``[B, N, T]`` or ``[T, N]``.

        Args:
            rows: bool ``[1 or B, 1 or T]``, packed ``[T]``.
        """
        if self._queries.is_packed:
            return jnp.where(rows[:, None], filling, array)
        filling = filling[..., None] if filling.ndim else filling
        return jnp.where(rows[:, None, :], filling, array)

    def _stats_without_keys(self) -> Array:
        """The log-sum-exp of each head's row that sees no key."""
        if self._problem.softmax is Softmax.LEARNABLE:
            return self._arrays["sink"]
        alone = 0.0 if self._problem.softmax is Softmax.OFF_BY_ONE else -jnp.inf
        return jnp.full(self._problem.heads, alone, jnp.float32)


def _like(bias: Array, gradient: Array) -> Array:
    """A bias's gradient, which cuDNN gives in the query's type and for each row of the query."""
    axes = tuple(
        i for i, (n, m) in enumerate(zip(bias.shape, gradient.shape, strict=True)) if n != m
    )
    if axes:
        gradient = gradient.astype(jnp.float32).sum(axes, keepdims=True)
    return gradient.astype(bias.dtype)
