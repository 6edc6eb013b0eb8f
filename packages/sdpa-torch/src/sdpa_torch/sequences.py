"""Index arithmetic of packed and paged sequences, on the device: nothing waits for the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Side(NamedTuple):
    """The sequences of a packed side ``[tokens, heads, head_dim]``.

    Attributes:
        starts: int64 ``[B]``, the row where each sequence starts.
        lengths: int64 ``[B]``, its tokens.
        longest: tokens of the longest sequence, as the caller says; later ones do not exist.
        tokens: rows of the packed tensors.
    """

    starts: Tensor
    lengths: Tensor
    longest: int
    tokens: int

    @classmethod
    def of(cls, cu_seqlens: Tensor, cu_padded: Tensor | None, longest: int, tokens: int) -> Side:
        starts = (cu_seqlens if cu_padded is None else cu_padded)[:-1].long()
        return cls(starts, lengths(cu_seqlens), longest, tokens)


class Places(NamedTuple):
    """Whose each row of a packed tensor is: sequence, token in it, and whether it is anyone's."""

    sequence: Tensor
    token: Tensor
    valid: Tensor


def lengths(cu_seqlens: Tensor) -> Tensor:
    """Tokens of each sequence, int64 ``[B]``."""
    return cu_seqlens[1:].long() - cu_seqlens[:-1].long()


def places(side: Side) -> Places:
    """The owner of every row; rows of gaps and after the last sequence are nobody's."""
    rows = torch.arange(side.tokens, device=side.starts.device)
    # The last sequence that starts at a row or before it; only an empty one can share its start.
    sequence = (torch.searchsorted(side.starts, rows, right=True) - 1).clamp(min=0)
    token = rows - side.starts[sequence]
    longest = side.lengths.clamp(max=side.longest)[sequence]
    valid = (token >= 0) & (token < longest)
    return Places(sequence, token.clamp(0, max(side.longest - 1, 0)), valid)


def padded(tensor: Tensor, side: Side) -> Tensor:
    """``[tokens, heads, n]`` as ``[B, heads, longest, n]``; rows past a sequence hold anything."""
    rows = side.starts[:, None] + torch.arange(side.longest, device=tensor.device)
    return tensor[rows.clamp(0, side.tokens - 1)].transpose(1, 2)


def packed(tensor: Tensor, where: Places, fill: float = 0.0) -> Tensor:
    """``[B, heads, longest, n]`` as ``[tokens, heads, n]``, with ``fill`` in nobody's rows."""
    rows = tensor.transpose(1, 2)[where.sequence, where.token]
    return rows.masked_fill(~where.valid[:, None, None], fill)


def gathered(pool: Tensor, table: Tensor) -> Tensor:
    """Pages ``[pages, heads, page_size, n]`` as ``[B, heads, tokens, n]``.

    Entries of the table that no sequence uses may be anything.
    """
    pages = pool[table.long().clamp(0, pool.shape[0] - 1)]
    batch, count, heads, size, head_dim = pages.shape
    return pages.transpose(1, 2).reshape(batch, heads, count * size, head_dim)


def rows_within(lengths: Tensor, tokens: int) -> Tensor:
    """Boolean ``[B, 1, tokens, 1]``: which rows a dense side's sequences have."""
    rows = torch.arange(tokens, device=lengths.device)
    return (rows < lengths[:, None])[:, None, :, None]
