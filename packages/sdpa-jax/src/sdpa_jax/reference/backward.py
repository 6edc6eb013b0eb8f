"""The backward pass."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array, lax

from sdpa_core import AttentionProblem
from sdpa_core.layout import Shape

from ..manual import vary_alike
from .exact import finite
from .logits import einsum
from .operands import Operands

_Arrays = dict[str, Array]


def backward(
    problem: AttentionProblem, scalars: tuple[float, ...], operands: Mapping[str, Array]
) -> dict[str, Array]:
    """``problem.gradients`` by role, each of its operand's shape and type.

    From the probabilities recomputed block by block. With ``P = exp(S - stats)``, ``m`` the
    dropout's factor and ``delta = rowsum(dO * O)``: ``dV = (m P)^T dO``,
    ``dS = P * (m dO V^T - delta)``, and from there back through the steps of ``logits`` to
    ``dQ = scale * dS K`` and ``dK = dS^T (scale * Q)`` (FlashAttention-2, Dao 2023, section 3.1).

    Args:
        problem, scalars: as for ``forward``.
        operands: its operands, ``output``, ``stats`` and ``grad_output``.
    """
    o = Operands.of(problem, scalars, operands)
    blocks, logits = o.blocks, o.logits
    queries_of = o.queries
    by_row = {
        "query": logits.scaled(o.query),
        "incoming": blocks.split(queries_of.dense(operands["grad_output"])),
        "outgoing": blocks.split(queries_of.dense(operands["output"])),
        # Rows that fill up a block get no weight, whatever their logits become.
        "stats": blocks.split(_dense_stats(o, operands["stats"])[..., None], jnp.inf),
    }
    shared_bias, block_bias = _bias_shapes(problem, blocks.rows)

    def add_block(totals: _Arrays, xs: tuple[Array, _Arrays, _Arrays]) -> tuple[_Arrays, _Arrays]:
        start, pairs, rows = xs
        block = logits.block(start, pairs)
        steps = logits.steps(block, rows["query"], o.keys)
        stats, incoming = rows["stats"], rows["incoming"]
        weights = jnp.exp(steps.logits - blocks.flat(finite(stats)))
        delta = (incoming * rows["outgoing"]).sum(-1, keepdims=True)
        grad_weights = blocks.flat(einsum("bkgth,bskh->bkgts", incoming, o.values))
        grad_weights = o.dropped(start, grad_weights)
        grad_logits = weights * (grad_weights - blocks.flat(delta))
        products = blocks.grouped(logits.back(block, steps, grad_logits))
        kept = blocks.grouped(o.dropped(start, weights))
        added = {
            "grad_key": einsum("bkgts,bkgth->bskh", products, rows["query"]),
            "grad_value": einsum("bkgts,bkgth->bskh", kept, incoming),
        }
        if shared_bias is not None:
            added["grad_bias"] = _summed(grad_logits, shared_bias)
        if problem.sink_grad:
            added["grad_sink"] = -(_sink_weight(o, start, stats) * blocks.flat(delta)).sum(
                (0, 2, 3)
            )
        by_block = {"grad_query": einsum("bkgts,bskh->bkgth", products, o.keys) * scalars[0]}
        if block_bias is not None:
            by_block["grad_bias"] = _summed(grad_logits, block_bias)
        return {name: totals[name] + added[name] for name in totals}, by_block

    totals = {"grad_key": jnp.zeros_like(o.keys), "grad_value": jnp.zeros_like(o.values)}
    if shared_bias is not None:
        totals["grad_bias"] = jnp.zeros(shared_bias, blocks.wide)
    if problem.sink_grad:
        totals["grad_sink"] = jnp.zeros(problem.heads, blocks.wide)
    totals = dict(zip(totals, vary_alike((*totals.values(), o.keys)), strict=False))
    totals, by_block = lax.scan(add_block, totals, (blocks.starts, logits.split_pairs, by_row))
    return _gradients(o, totals, by_block)


def _sink_weight(o: Operands, start: Array, stats: Array) -> Array:
    """``exp(sink - stats)`` of a block's rows ``[B, N, rows, 1]``, 0 where none exist."""
    assert o.sink is not None
    weight = jnp.exp(o.sink - o.blocks.flat(stats))
    return jnp.where(o.masks.rows_exist(start), weight, 0.0)


def _dense_stats(o: Operands, stats: Array) -> Array:
    """``[B, N, T]``, or packed ``[T, N]``, as ``[B, T, N]``."""
    if o.queries.is_packed:
        return o.queries.dense(stats)
    return stats.swapaxes(1, 2)


def _gradients(
    o: Operands, totals: Mapping[str, Array], by_block: Mapping[str, Array]
) -> dict[str, Array]:
    """The sums and blocks of a backward pass as gradients of the caller's operands."""
    found = {
        "grad_query": o.queries.restored(o.blocks.join(by_block["grad_query"])),
        "grad_key": o.keys_of.restored(totals["grad_key"]),
        "grad_value": o.keys_of.restored(totals["grad_value"]),
    }
    if "grad_bias" in by_block:
        found["grad_bias"] = o.blocks.join_pairs(by_block["grad_bias"])
    found.update({name: totals[name] for name in totals if name not in found})
    return {
        name: found[name].astype(o.operands[name.removeprefix("grad_")].dtype)
        for name in o.problem.gradients
    }


def _bias_shapes(problem: AttentionProblem, rows: int) -> tuple[Shape | None, Shape | None]:
    """The shape of a bias's gradient that is summed over all blocks, or of its part in each."""
    if problem.bias is None or not problem.bias_grad:
        return None, None
    batch, heads, own_rows, tokens_kv = problem.bias.shape
    if own_rows == 1:
        return problem.bias.shape, None
    return None, (batch, heads, rows, tokens_kv)


def _summed(pairs: Array, shape: tuple[int, ...]) -> Array:
    """``[B, N, rows, S]`` summed over the axes along which ``shape`` is broadcast."""
    axes = tuple(axis for axis, (n, m) in enumerate(zip(pairs.shape, shape, strict=True)) if n != m)
    return pairs.sum(axes, keepdims=True)
