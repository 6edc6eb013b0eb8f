"""The forward pass."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array, lax

from sdpa_core import AttentionProblem

from .exact import finite
from .logits import einsum
from .operands import Operands


def forward(
    problem: AttentionProblem, scalars: tuple[float, ...], operands: Mapping[str, Array]
) -> dict[str, Array]:
    """``problem.results`` by role.

    Args:
        problem: what to compute, see ``AttentionProblem``.
        scalars: the scale, then the numbers that ``score_mod`` takes.
        operands: ``problem.inputs`` by role, as ``calls`` describes them.

    Returns:
        ``output`` in the query's type. A row that sees no key has O = 0 and log-sum-exp -inf, or
        that of the sink alone; a row of no sequence always has 0 and -inf.
    """
    o = Operands.of(problem, scalars, operands)
    blocks, logits = o.blocks, o.logits

    def of_block(xs: tuple[Array, dict[str, Array], Array]) -> tuple[Array, Array, Array]:
        start, pairs, queries = xs
        steps = logits.steps(logits.block(start, pairs), queries, o.keys)
        largest = steps.logits.max(-1, keepdims=True)
        peak = finite(largest if o.sink is None else jnp.maximum(largest, o.sink))
        weights = jnp.exp(steps.logits - peak)
        total = weights.sum(-1, keepdims=True)
        if o.sink is not None:
            total = total + jnp.exp(o.sink - peak)
        kept = blocks.grouped(o.dropped(start, weights))
        output = einsum("bkgts,bskh->bkgth", kept, o.values)
        output = output / blocks.grouped(jnp.where(total > 0, total, 1.0))
        stats = peak + jnp.log(total)
        if o.sink is not None:
            stats = jnp.where(o.masks.rows_exist(start), stats, -jnp.inf)
        largest = jnp.where(o.masks.rows_exist(start), largest, -jnp.inf)
        return output, blocks.grouped(stats), largest.max((2, 3))

    output, stats, largest = lax.map(
        of_block, (blocks.starts, logits.split_pairs, logits.scaled(o.query))
    )
    return _results(o, output, stats, largest)


def _results(o: Operands, output: Array, stats: Array, largest: Array) -> dict[str, Array]:
    """The blocks of a forward pass put together, each result as the caller expects it."""
    by_sequence = largest.max(0)
    by_row = o.blocks.join(stats)[..., 0]
    packed = o.queries.is_packed
    lse = o.queries.restored(by_row, -jnp.inf) if packed else by_row.swapaxes(1, 2)
    found = {
        "output": o.queries.restored(o.blocks.join(output)).astype(o.query.dtype),
        "stats": lse,
        "max_logit": by_sequence.max(0, keepdims=True) if packed else by_sequence,
    }
    return {name: found[name] for name in o.problem.results}
