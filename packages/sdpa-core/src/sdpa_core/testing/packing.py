"""Between padded ``[B, H, S, D]`` and packed ``[T, H, D]`` arrays, and pools of pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .logits import Array


@dataclass(frozen=True)
class Packing:
    """Where the sequences of one side lie in a packed tensor.

    Attributes:
        lengths: of the sequences, in tokens.
        padded: S, tokens of a sequence in the padded form; at least the longest.
        gaps: unused rows after each sequence; None: none, and starts are not given separately.
        tail: unused rows after the last sequence and its gap.
    """

    lengths: tuple[int, ...]
    padded: int
    gaps: tuple[int, ...] | None = None
    tail: int = 0

    @cached_property
    def cu_seqlens(self) -> NDArray[np.int32]:
        """int32 ``[B + 1]``: sums of the lengths."""
        return _sums(self.lengths)

    @cached_property
    def cu_seqlens_padded(self) -> NDArray[np.int32] | None:
        """int32 ``[B + 1]``: where sequences start; None without gaps."""
        if self.gaps is None:
            return None
        return _sums(tuple(n + gap for n, gap in zip(self.lengths, self.gaps, strict=True)))

    @property
    def starts(self) -> NDArray[np.int32]:
        """int32 ``[B]``: first row of each sequence."""
        padded = self.cu_seqlens_padded
        return (self.cu_seqlens if padded is None else padded)[:-1]

    @property
    def tokens(self) -> int:
        """T, rows of the packed tensor."""
        return sum(self.lengths) + sum(self.gaps or ()) + self.tail

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """``[B, S]``: the packed row of each token; -1 for those that do not exist."""
        rows = np.full((len(self.lengths), self.padded), -1)
        for b, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            rows[b, :length] = np.arange(start, start + length)
        return rows

    def pack(self, padded: NDArray[Any], *, fill: float = np.nan) -> NDArray[Any]:
        """``[B, H, S, ...]`` as ``[T, H, ...]``, with ``fill`` in the rows of no sequence."""
        by_token = np.swapaxes(padded, 1, 2)
        packed = np.full((self.tokens, *by_token.shape[2:]), fill, dtype=padded.dtype)
        packed[self.rows[self.rows >= 0]] = by_token[self.rows >= 0]
        return packed

    def unpack(self, packed: NDArray[Any], *, fill: float = 0.0) -> NDArray[Any]:
        """``[T, H, ...]`` as ``[B, H, S, ...]``, with ``fill`` for tokens that do not exist."""
        shape = (*self.rows.shape, *packed.shape[1:])
        by_token = np.full(shape, fill, dtype=packed.dtype)
        by_token[self.rows >= 0] = packed[self.rows[self.rows >= 0]]
        return np.swapaxes(by_token, 1, 2)

    def gap_rows(self, packed: NDArray[Any]) -> NDArray[Any]:
        """The rows of ``[T, ...]`` that belong to no sequence."""
        unused = np.ones(self.tokens, dtype=np.bool_)
        unused[self.rows[self.rows >= 0]] = False
        return packed[unused]


class Pages(NamedTuple):
    """Keys and values in pages.

    Attributes:
        key_pool, value_pool: ``[pages, page_size, Hkv, D]``. Rows past a sequence's length, and
            pages of no sequence, hold large finite numbers.
        key_table, value_table: int32 ``[B, pages of a sequence]``. Entries past a sequence's
            length name a page that is not its own.
    """

    key_pool: Array
    value_pool: Array
    key_table: NDArray[np.int32]
    value_table: NDArray[np.int32]


def paged(
    key: Array,
    value: Array,
    lengths: tuple[int, ...],
    page_size: int,
    *,
    own_value_table: bool = False,
) -> Pages:
    """``[B, Hkv, Skv, D]`` cut into pages, which lie in a shuffled order."""
    key_table = _table(key, lengths, page_size, seed=1)
    value_table = _table(key, lengths, page_size, seed=2) if own_value_table else key_table
    return Pages(
        _pool(key, lengths, page_size, key_table),
        _pool(value, lengths, page_size, value_table),
        key_table,
        value_table,
    )


#: What lies where no sequence reads: large enough to show, and finite in float16.
_UNREAD = 3000.0


def _table(key: Array, lengths: tuple[int, ...], page_size: int, seed: int) -> NDArray[np.int32]:
    batch, per_sequence = key.shape[0], -(-key.shape[2] // page_size)
    order = np.random.default_rng(seed).permutation(batch * per_sequence)
    table = order.astype(np.int32).reshape(batch, per_sequence) + 1  # page 0 is no sequence's
    for row, length in zip(table, lengths, strict=True):
        row[-(-length // page_size) :] = 0
    return table


def _pool(
    operand: Array, lengths: tuple[int, ...], page_size: int, table: NDArray[np.int32]
) -> Array:
    batch, heads, _, head_dim = operand.shape
    pool = np.full((table.size + 1, page_size, heads, head_dim), _UNREAD)
    for b in range(batch):
        for j in range(lengths[b]):
            pool[table[b, j // page_size], j % page_size] = operand[b, :, j]
    return pool


def _sums(lengths: tuple[int, ...]) -> NDArray[np.int32]:
    return np.cumsum([0, *lengths], dtype=np.int32)
