"""The reference backend: plain ``jax.numpy``, blocked over queries.

Memory grows with the number of tokens, not with its square. Everything is accumulated in
float32 (float64 for float64 inputs) and rounded once at the end. It runs wherever JAX does and
mirrors ``sdpa_torch.reference`` step by step. There must be at least one query and one key;
``calls`` answers empty problems itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from sdpa_core import Band

#: Query rows that are processed together.
BLOCK = 256

# Tensor cores of GPUs and matrix units of TPUs would otherwise round float32 to 10 bits or fewer.
_einsum: Callable[..., Array] = partial(jnp.einsum, precision=lax.Precision.HIGHEST)


def accumulation_type(dtype: jnp.dtype) -> jnp.dtype:
    """The type in which sums are made, and in which the log-sum-exp is returned."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


def forward(
    query: Array, key: Array, value: Array, band: Band, scale: float
) -> tuple[Array, Array]:
    """``O = softmax(scale * Q K^T) V`` and the log-sum-exp of each row.

    Args:
        query: ``[B, T, N, H]``.
        key: ``[B, S, K, H]``; query head ``n`` uses key head ``n // (N // K)``.
        value: ``[B, S, K, Hv]``.
        band: which keys a query sees.
        scale: factor of the logits.

    Returns:
        ``[B, T, N, Hv]`` in the query's type, and ``[B, N, T]`` in the type of accumulation. A row
        that sees no key has O = 0 and log-sum-exp = -inf.
    """
    blocks = _Blocks.of(query, key, band, scale)
    keys, values = key.astype(blocks.wide), value.astype(blocks.wide)

    def of_block(block: tuple[Array, Array]) -> tuple[Array, Array]:
        start, queries = block
        logits = blocks.logits(start, queries, keys)
        peak = _finite(logits.max(-1, keepdims=True))
        weights = jnp.exp(logits - peak)
        total = weights.sum(-1, keepdims=True)
        output = _einsum("bkgts,bskh->bkgth", weights, values) / jnp.where(total > 0, total, 1.0)
        return output, peak + jnp.log(total)

    output, lse = lax.map(of_block, (blocks.starts, blocks.scaled(query)))
    return blocks.join(output).astype(query.dtype), blocks.join(lse)[..., 0].swapaxes(1, 2)


def backward(
    query: Array,
    key: Array,
    value: Array,
    output: Array,
    lse: Array,
    grad_output: Array,
    band: Band,
    scale: float,
) -> tuple[Array, Array, Array]:
    """Gradients of ``forward``'s output, from the probabilities recomputed block by block.

    With ``P = exp(S - lse)`` and ``delta = rowsum(dO * O)``: ``dV = P^T dO``,
    ``dS = P * (dO V^T - delta)``, ``dQ = scale * dS K``, ``dK = dS^T (scale * Q)``
    (FlashAttention-2, Dao 2023, section 3.1).

    Args:
        query, key, value, band, scale: as for ``forward``.
        output, lse: its results.
        grad_output: ``[B, T, N, Hv]``.

    Returns:
        The gradients of query, key and value, each of its operand's shape and type.
    """
    blocks = _Blocks.of(query, key, band, scale)
    keys, values = key.astype(blocks.wide), value.astype(blocks.wide)

    def add_block(
        totals: tuple[Array, Array], block: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], Array]:
        grad_key, grad_value = totals
        start, queries, incoming, outgoing, row_lse = block
        weights = jnp.exp(blocks.logits(start, queries, keys) - _finite(row_lse))
        delta = (incoming * outgoing).sum(-1, keepdims=True)
        grad_weights = _einsum("bkgth,bskh->bkgts", incoming, values)
        grad_logits = weights * (grad_weights - delta)
        grad_query = _einsum("bkgts,bskh->bkgth", grad_logits, keys) * scale
        grad_key += _einsum("bkgts,bkgth->bskh", grad_logits, queries)
        grad_value += _einsum("bkgts,bkgth->bskh", weights, incoming)
        return (grad_key, grad_value), grad_query

    rows = (grad_output, output, lse.swapaxes(1, 2)[..., None])
    (grad_key, grad_value), grad_query = lax.scan(
        add_block,
        (jnp.zeros_like(keys), jnp.zeros_like(values)),
        (blocks.starts, blocks.scaled(query), *(blocks.split(x) for x in rows)),
    )
    grad_query = blocks.join(grad_query).astype(query.dtype)
    return grad_query, grad_key.astype(key.dtype), grad_value.astype(value.dtype)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How query rows are cut into blocks, the last one filled up with rows of zeros.

    Filling rows are harmless: their ``dO`` is 0, hence all that they add to ``dK`` and ``dV``.

    Attributes:
        rows: in a block.
        count: of blocks.
        tokens: real query rows, T.
        groups: ``(K, N // K)``: key heads are never repeated.
        limits: of the band, from the top-left diagonal.
    """

    rows: int
    count: int
    tokens: int
    groups: tuple[int, int]
    limits: tuple[int | None, int | None]
    scale: float
    wide: jnp.dtype

    @classmethod
    def of(cls, query: Array, key: Array, band: Band, scale: float) -> _Blocks:
        tokens, heads = query.shape[1:3]
        tokens_kv, heads_kv = key.shape[1:3]
        rows = min(tokens, BLOCK)
        return cls(
            rows=rows,
            count=-(-tokens // rows),
            tokens=tokens,
            groups=(heads_kv, heads // heads_kv),
            limits=band.limits(tokens, tokens_kv),
            scale=scale,
            wide=accumulation_type(query.dtype),
        )

    @property
    def starts(self) -> Array:
        """The first row of each block."""
        return jnp.arange(self.count, dtype=jnp.int32) * self.rows

    def scaled(self, query: Array) -> Array:
        """``split(query)`` times the scale.

        Before the product and not after it: XLA contracts ``exp(scale * product - peak)`` to a
        fused multiply-add, whose product is not the rounded one that ``peak`` was taken from. The
        error grows with the logits until the exponential overflows (tests/test_as_users_compile).
        """
        return self.split(query) * self.scale

    def split(self, array: Array) -> Array:
        """``[B, T, N, X]`` as ``[count, B, K, N // K, rows, X]``, in the type of accumulation."""
        batch, tokens, _, width = array.shape
        filling = self.count * self.rows - tokens
        array = jnp.pad(array.astype(self.wide), ((0, 0), (0, filling), (0, 0), (0, 0)))
        array = array.reshape(batch, self.count, self.rows, *self.groups, width)
        return array.transpose(1, 0, 3, 4, 2, 5)

    def join(self, blocks: Array) -> Array:
        """The inverse of ``split``, but for the type."""
        batch, width = blocks.shape[1], blocks.shape[-1]
        heads_kv, group = self.groups
        array = blocks.transpose(1, 0, 4, 2, 3, 5)
        array = array.reshape(batch, self.count * self.rows, heads_kv * group, width)
        return array[:, : self.tokens]

    def logits(self, start: Array, queries: Array, keys: Array) -> Array:
        """``[B, K, N // K, rows, S]``: products of one block's scaled rows, -inf where hidden."""
        logits = _einsum("bkgth,bskh->bkgts", queries, keys)
        left, right = self.limits
        if left is None and right is None:
            return logits
        i = start + lax.broadcasted_iota(jnp.int32, logits.shape[-2:], 0)
        j = lax.broadcasted_iota(jnp.int32, logits.shape[-2:], 1)
        visible = jnp.ones(logits.shape[-2:], jnp.bool_)
        if left is not None:
            visible &= j >= i - left
        if right is not None:
            visible &= j <= i + right
        return jnp.where(visible, logits, -jnp.inf)


def _finite(peak: Array) -> Array:
    """-inf (a row without visible keys) as 0, so that no difference of infinities arises."""
    return jnp.where(peak > -jnp.inf, peak, 0.0)
