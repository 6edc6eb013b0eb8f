"""cuDNN's dropout decisions as arrays, for a block of query rows.

The formula is that of ``sdpa_core.philox``. Without ``jax_enable_x64`` there are no 64-bit
integers: seed and offset are pairs of words, see ``words``.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from sdpa_core.philox import (
    COUNTERS_PER_HEAD,
    KEY_STEPS,
    MASK32,
    MULTIPLIERS,
    ROUNDS,
    keep_threshold,
)

from .words import product


def keep_mask(
    seed: Array,
    offset: Array,
    dropout_p: float,
    batch: int,
    heads: int,
    tokens_q: int,
    start: ArrayLike,
    row_count: int,
    tokens_kv: int,
) -> Array:
    """True where a probability is kept, ``[batch, heads, row_count, tokens_kv]``.

    Args:
        seed: uint32 ``[2]``, low and high word.
        offset: uint32 ``[2]``, low and high word; its value is not looked at: a multiple of 4 in
            ``[0, 2^63)``.
        heads: of the query.
        tokens_q: of the whole query: the mapping depends on it.
        start: first row, an int or a traced integer. Rows from ``tokens_q`` on, which fill up a
            last block, get some decision.

    Raises:
        TypeError: seed or offset is not uint32; ``dropout_p`` is no number.
        ValueError: seed or offset has not two elements, or ``dropout_p`` is not in ``[0, 1)``.
    """
    _check("seed", seed)
    _check("offset", offset)
    threshold = jnp.uint32(keep_threshold(dropout_p))
    start = jnp.asarray(start).astype(jnp.uint32)
    row_tiles = -(-row_count // 16) + 1  # one more where the block starts inside a tile
    column_tiles = -(-tokens_kv // 16)
    shape = (batch * heads, row_tiles, column_tiles, COUNTERS_PER_HEAD)
    n, i, j, residue = (lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in range(4))
    quarter = offset[0] >> 2 | offset[1] << 30
    first = quarter + (COUNTERS_PER_HEAD * n + residue)
    high = (offset[1] >> 2) + (first < quarter)  # the carry of the sum
    third = (start // 16 + i) + jnp.uint32(-(-tokens_q // 16)) * j
    words = jnp.stack(_philox((first, high), third, seed))
    kept = jnp.stack([words & 0xFFFF, words >> 16]) <= threshold
    # parity of i, half of the row tile, half of the column tile, head, row tile, column tile, j % 8
    kept = kept.reshape(2, 2, 2, *shape).transpose(3, 4, 1, 0, 5, 2, 6)[:, :, :, None]
    kept = jnp.broadcast_to(kept, (*shape[:2], 2, 4, 2, column_tiles, 2, 8))
    mask = kept.reshape(batch, heads, 16 * row_tiles, 16 * column_tiles)[..., :tokens_kv]
    skipped = (start % 16).astype(jnp.int32)
    return lax.dynamic_slice_in_dim(mask, skipped, row_count, axis=2)


def _philox(first: tuple[Array, Array], third: Array, seed: Array) -> list[Array]:
    """``philox4x32`` of counters ``(*first, third, 0)``: four words in uint32."""
    c0, c1, c2, c3 = *first, third, jnp.uint32(0)
    for r in range(ROUNDS):
        k0, k1 = (seed[word] + jnp.uint32(r * step & MASK32) for word, step in enumerate(KEY_STEPS))
        low0, high0 = product(MULTIPLIERS[0], c0)
        low2, high2 = product(MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high2 ^ c1 ^ k0, low2, high0 ^ c3 ^ k1, low0
    return [c0, c1, c2, c3]


def _check(name: str, value: Array) -> None:
    if value.dtype != jnp.uint32:
        raise TypeError(f"{name} is {value.dtype}; expected uint32")
    if value.shape != (2,):
        raise ValueError(f"{name} has shape {list(value.shape)}; expected [2], low and high word")
