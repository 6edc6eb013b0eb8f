"""Rows that no sequence has, kept from mattering: a few operations on the device.

cuDNN multiplies probabilities that are 0 with whatever the rows past a sequence's end hold, and
``0 * NaN`` is NaN (H200, cuDNN 9.19). Nothing here waits for the host, so all can be captured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sdpa_core.layout import Strides

from .. import sequences
from ..features import Features


@dataclass(frozen=True)
class Rows:
    """The rows of one side's tensors.

    Attributes:
        side: ``"q"`` or ``"kv"``.
        longest: tokens of the longest sequence if packed.
    """

    side: str
    longest: int | None

    def valid(self, named: Mapping[str, Tensor], like: Tensor) -> Tensor | None:
        """Which rows of a tensor of this side sequences have, broadcastable to it; None: all."""
        if self.longest is not None:
            return self._places(named, like).valid[:, None, None]
        lengths = named.get(f"seq_lens_{self.side}")
        return None if lengths is None else sequences.rows_within(lengths, like.shape[2])

    def of_sequences(self, chosen: Tensor, named: Mapping[str, Tensor], like: Tensor) -> Tensor:
        """Boolean ``[B]``, of sequences, for the rows of a tensor of this side."""
        if self.longest is None:
            return chosen.reshape(-1, 1, 1, 1)
        places = self._places(named, like)
        return (chosen[places.sequence] & places.valid)[:, None, None]

    def lengths(self, named: Mapping[str, Tensor]) -> Tensor | None:
        """Tokens of each sequence; None: all are full."""
        if self.longest is not None:
            return sequences.lengths(named[f"cu_seqlens_{self.side}"])
        return named.get(f"seq_lens_{self.side}")

    def places(self, named: Mapping[str, Tensor], tokens: int) -> sequences.Places:
        return sequences.places(self.of(named, tokens))

    def of(self, named: Mapping[str, Tensor], tokens: int) -> sequences.Side:
        assert self.longest is not None
        cu_seqlens = named[f"cu_seqlens_{self.side}"]
        gaps = named.get(f"cu_seqlens_{self.side}_padded")
        return sequences.Side.of(cu_seqlens, gaps, self.longest, tokens)

    def _places(self, named: Mapping[str, Tensor], like: Tensor) -> sequences.Places:
        return self.places(named, like.shape[0])


def query_rows(features: Features) -> Rows:
    return Rows("q", features.max_q)


def key_rows(features: Features) -> Rows:
    return Rows("kv", features.max_kv)


def with_clear_slack(
    tensors: tuple[Tensor, ...],
    features: Features,
    strides: tuple[Strides, ...],
    query_side: tuple[int, ...] = (),
) -> tuple[Tensor, ...]:
    """Operands whose key and value hold zeros past each sequence's end.

    Pages are shared by sequences and stay as they are. So do packed operands: neither gaps nor
    neighbouring sequences reach a result, whatever they hold (H200, cuDNN 9.19).

    Args:
        strides: of the operands as they are planned, in which copies lie.
        query_side: places of the tensors with the query's rows that are cleared too.
    """
    named = dict(zip(features.roles, tensors, strict=False))
    result = list(tensors)
    sides = [(query_rows(features), query_side)]
    if not features.is_paged:
        sides.append((key_rows(features), (1, 2)))
    for rows, places in sides:
        dense = bool(places) and rows.longest is None
        valid = rows.valid(named, tensors[places[0]]) if dense else None
        if valid is not None:
            for place in places:
                result[place] = _cleared(tensors[place], valid, strides[place])
    return tuple(result)


def _cleared(tensor: Tensor, valid: Tensor, strides: Strides) -> Tensor:
    """A copy with these strides, and zeros in the rows that are not valid."""
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    if 0 in strides:  # an expanded query: as many elements as there are in memory
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    torch.where(valid, tensor, tensor.new_zeros(()), out=copy)
    return copy
