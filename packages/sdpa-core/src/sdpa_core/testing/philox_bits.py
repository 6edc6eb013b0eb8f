"""cuDNN's dropout decisions in NumPy, by the formula of ``philox``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..philox import (
    COUNTERS_PER_HEAD,
    KEY_STEPS,
    MASK32,
    MULTIPLIERS,
    OFFSETS_PER_COUNTER,
    ROUNDS,
    PhiloxState,
    keep_threshold,
)

Words = NDArray[np.uint32]


def keep_mask(
    seed: int,
    offset: int,
    dropout_p: float,
    batch: int,
    heads: int,
    tokens_q: int,
    tokens_kv: int,
) -> NDArray[np.bool_]:
    """True where a probability is kept, ``[batch, heads, tokens_q, tokens_kv]``.

    Works head by head, so that nearly all of its memory is the result's.

    Args:
        seed: in ``[0, 2^64)``, or the negative number that an int64 buffer shows.
        offset: a multiple of 4 in ``[0, 2^63)``.
        heads: of the query.

    Raises:
        TypeError, ValueError: as ``PhiloxState`` and ``keep_threshold``.
    """
    state = PhiloxState(seed + 2**64 if seed < 0 else seed, offset)
    threshold = keep_threshold(dropout_p)
    mask = np.empty((batch * heads, tokens_q, tokens_kv), np.bool_)
    for n in range(batch * heads):
        mask[n] = _head(state, threshold, n, tokens_q, tokens_kv)
    return mask.reshape(batch, heads, tokens_q, tokens_kv)


def _head(
    state: PhiloxState, threshold: int, n: int, tokens_q: int, tokens_kv: int
) -> NDArray[np.bool_]:
    """Decisions of one head. A counter serves 16 rows of two columns: all tiles at once."""
    row_tiles, column_tiles = -(-tokens_q // 16), -(-tokens_kv // 16)
    start = state.offset // OFFSETS_PER_COUNTER + COUNTERS_PER_HEAD * n
    first = np.uint64(start) + np.arange(COUNTERS_PER_HEAD, dtype=np.uint64)
    third = (
        np.arange(row_tiles, dtype=np.uint64)[:, None, None]
        + np.uint64(row_tiles) * np.arange(column_tiles, dtype=np.uint64)[:, None]
    )
    first, third = np.broadcast_arrays(first, third & MASK32)
    words = np.stack(_philox(first, third, state.key)).reshape(2, 2, *first.shape)
    kept = np.stack([words & 0xFFFF, words >> 16]) <= threshold
    # parity of i, half of the row tile, half of the column tile, row tile, column tile, j % 8
    kept = kept.transpose(3, 1, 0, 4, 2, 5)[:, :, None]
    tiled = np.broadcast_to(kept, (row_tiles, 2, 4, 2, column_tiles, 2, 8))
    return tiled.reshape(16 * row_tiles, 16 * column_tiles)[:tokens_q, :tokens_kv]


def _philox(first: NDArray[Any], third: NDArray[Any], key: tuple[int, int]) -> list[Words]:
    """``philox.philox4x32`` of counters ``first`` (64 bits) and ``(third, 0)``, as uint32."""
    c0: NDArray[Any] = first & MASK32
    c1: NDArray[Any] = first >> np.uint64(32)
    c2, c3 = third, np.zeros_like(third)
    for r in range(ROUNDS):
        k0, k1 = (
            np.uint64((k + r * step) & MASK32) for k, step in zip(key, KEY_STEPS, strict=True)
        )
        p0, p2 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (p2 >> 32) ^ c1 ^ k0, p2 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
    return [np.asarray(c, np.uint32) for c in (c0, c1, c2, c3)]
