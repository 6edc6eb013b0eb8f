"""Blocks of query rows, with the columns that any of them sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .operands import Operands

#: Query rows that are processed together.
BLOCK = 256


class Block(NamedTuple):
    """Rows and columns of the logits."""

    rows: slice
    columns: slice

    def of(self, tensor: Tensor) -> Tensor:
        """The block's part of a tensor that broadcasts to the logits."""
        rows = self.rows if tensor.shape[-2] != 1 else slice(None)
        columns = self.columns if tensor.shape[-1] != 1 else slice(None)
        return tensor[..., rows, columns]

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Numbers of the queries ``[n, 1]`` and of the keys ``[m]``, int64."""
        i = torch.arange(self.rows.start, self.rows.stop, device=device)
        j = torch.arange(self.columns.start, self.columns.stop, device=device)
        return i[:, None], j


def blocks(operands: Operands) -> Iterator[Block]:
    tokens_q, tokens_kv = operands.query.shape[2], operands.key.shape[2]
    left, right = operands.band.limits(tokens_q, tokens_kv)
    if not isinstance(operands.shift, int):
        left = right = None  # each sequence has a diagonal of its own
    for start in range(0, tokens_q, BLOCK):
        stop = min(start + BLOCK, tokens_q)
        first = 0 if left is None else min(max(start - left, 0), tokens_kv)
        last = tokens_kv if right is None else min(max(stop + right, 0), tokens_kv)
        if last <= first:
            first, last = 0, 1  # no row of the block sees a key: one hidden column stands for all
        yield Block(slice(start, stop), slice(first, last))


def grouped(tensor: Tensor, key: Tensor) -> Tensor:
    """``[B, Hq, n, D]`` as ``[B, Hkv, group * n, D]``: key heads are never repeated."""
    batch, _, rows, head_dim = tensor.shape
    heads_kv = max(key.shape[1], 1)
    return tensor.reshape(batch, heads_kv, tensor.shape[1] // heads_kv * rows, head_dim)


def ungrouped(tensor: Tensor, heads: int) -> Tensor:
    batch, heads_kv, grouped_rows, head_dim = tensor.shape
    rows = grouped_rows * heads_kv // heads if heads else 0
    return tensor.reshape(batch, heads, rows, head_dim)


def add_rows(total: Tensor, block: Tensor, columns: slice) -> Tensor:
    """Out of place, because vmap forbids writing a batched block into an unbatched total."""
    after = total.shape[2] - columns.stop
    return total + torch.nn.functional.pad(block, (0, 0, columns.start, after))
