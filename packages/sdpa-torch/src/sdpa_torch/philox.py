"""cuDNN's dropout decisions as tensors, for a block of rows and columns.

The formula is that of ``sdpa_core.philox``. Seed and offset stay on the device; everything is
plain int64 arithmetic, so it can be traced and captured.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdpa_core.philox import (
    COUNTERS_PER_HEAD,
    KEY_STEPS,
    MASK32,
    MULTIPLIERS,
    ROUNDS,
    keep_threshold,
)


def keep_mask(
    seed: Tensor,
    offset: Tensor,
    dropout_p: float,
    batch: int,
    heads: int,
    tokens_q: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
) -> Tensor:
    """True where a probability is kept, ``[batch, heads, n, m]`` on the seed's device.

    Args:
        seed: int64, one element; any, read as two's complement.
        offset: int64, one element; its value is not looked at: a multiple of 4 in ``[0, 2^63)``.
        heads: of the query.
        tokens_q: of the whole query: the mapping depends on it.
        rows, columns: the block, ``start <= index < stop``.

    Raises:
        TypeError: seed or offset is not int64; ``dropout_p`` is no number.
        ValueError: seed or offset has not one element, or ``dropout_p`` is not in ``[0, 1)``.
    """
    _check("seed", seed)
    _check("offset", offset)
    threshold = keep_threshold(dropout_p)
    first_row, stop_row = rows[0] // 16, -(-rows[1] // 16)
    first_column, stop_column = columns[0] // 16, -(-columns[1] // 16)
    device = seed.device
    n = torch.arange(batch * heads, device=device)[:, None, None, None]
    i = torch.arange(first_row, stop_row, device=device)[:, None, None]
    j = torch.arange(first_column, stop_column, device=device)[:, None]
    residue = torch.arange(COUNTERS_PER_HEAD, device=device)
    first = (offset.reshape(()) >> 2) + COUNTERS_PER_HEAD * n + residue
    third = i + -(-tokens_q // 16) * j
    words = torch.stack(_philox(first, third & MASK32, seed.reshape(())))
    kept = torch.stack([words & 0xFFFF, words >> 16]) <= threshold
    # parity of i, half of the row tile, half of the column tile, head, row tile, column tile, j % 8
    kept = kept.unflatten(1, (2, 2)).permute(3, 4, 1, 0, 5, 2, 6)
    kept = kept[:, :, :, None].expand(-1, -1, -1, 4, -1, -1, -1, -1)
    mask = kept.reshape(
        batch, heads, 16 * (stop_row - first_row), 16 * (stop_column - first_column)
    )
    return mask[
        :,
        :,
        rows[0] - 16 * first_row : rows[1] - 16 * first_row,
        columns[0] - 16 * first_column : columns[1] - 16 * first_column,
    ]


def _philox(first: Tensor, third: Tensor, seed: Tensor) -> list[Tensor]:
    """``philox4x32`` of counters ``first`` (64 bits) and ``(third, 0)``: four words in int64."""
    first, c2 = torch.broadcast_tensors(first, third)
    c0, c1 = first & MASK32, (first >> 32) & MASK32
    c3 = torch.zeros((), dtype=torch.int64, device=seed.device)
    k0, k1 = seed & MASK32, (seed >> 32) & MASK32
    for _ in range(ROUNDS):
        # The products wrap around modulo 2^64 and the shift copies the sign: both end in the mask.
        p0, p2 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1 = ((p2 >> 32) & MASK32) ^ c1 ^ k0, p2 & MASK32
        c2, c3 = ((p0 >> 32) & MASK32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK32, (k1 + KEY_STEPS[1]) & MASK32
    return [c0, c1, c2, c3]


def _check(name: str, value: Tensor) -> None:
    if value.dtype != torch.int64:
        raise TypeError(f"{name} is {value.dtype}; expected torch.int64")
    if value.numel() != 1:
        raise ValueError(f"{name} has shape {list(value.shape)}; expected one element")
