"""Results of problems that have nothing to compute: no row of the output, or no key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from sdpa_core import AttentionProblem
from sdpa_core.problem import Softmax

from .sequences import Sequences


def empty_results(
    problem: AttentionProblem, operands: Mapping[str, Array], avals: list[Any]
) -> tuple[Array, ...]:
    """``problem.results``: output 0, no logit, and what a sink alone leaves of the log-sum-exp."""
    fillings: dict[str, Array | float] = {
        "output": 0.0,
        "stats": _stats(problem, operands) if problem.needs_stats else 0.0,
        "max_logit": -jnp.inf,
    }
    return tuple(
        jnp.broadcast_to(jnp.asarray(fillings[role], aval.dtype), aval.shape)
        for role, aval in zip(problem.results, avals, strict=True)
    )


def _stats(problem: AttentionProblem, operands: Mapping[str, Array]) -> Array:
    """Broadcastable to ``[B, N, T]``, of packed queries to ``[T, N]``."""
    if problem.softmax is Softmax.VANILLA:
        return jnp.asarray(-jnp.inf)
    learnable = problem.softmax is Softmax.LEARNABLE
    sink = operands["sink"] if learnable else jnp.zeros(problem.heads, jnp.float32)
    exist = Sequences.of_queries(problem, operands).exist()
    if problem.packed_q is not None:
        assert exist is not None
        return jnp.where(exist[:, None], sink, -jnp.inf)
    sink = sink[:, None]
    return sink if exist is None else jnp.where(exist[:, None], sink, -jnp.inf)
