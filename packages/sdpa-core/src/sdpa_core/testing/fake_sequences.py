"""Where the sequences of a described graph lie, read from the operands as cuDNN reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cudnn.graph import GraphSpec, Operand

Values = Mapping[str, NDArray[Any]]

#: cuDNN's key tiles: what lies in the rest of a sequence's last one is multiplied with zeros.
_TILE = 128


@dataclass(frozen=True)
class Side:
    """The sequences of queries, or of keys.

    Attributes:
        lengths: ``[B]``, as many as are declared; None: all are full.
        starts: ``[B]``, the packed row of each sequence's first token; None: dense.
        tokens: S of the padded form.
    """

    lengths: NDArray[np.int64] | None
    starts: NDArray[np.int64] | None
    tokens: int

    @classmethod
    def of(cls, graph: GraphSpec, values: Values, side: str) -> Side:
        """Of ``q`` or ``kv``."""
        operand = graph.operand("query" if side == "q" else "key")
        starts = _starts(graph, values, operand)
        # Beside a function of the logits they hide nothing: that does the function itself.
        hidden_by_function = graph.score_mod is not None and starts is None
        lengths = None if hidden_by_function else _lengths(graph, values, side)
        if starts is not None:
            if lengths is None:
                raise AssertionError(f"{operand.role} is packed, but the graph has no lengths")
            return cls(lengths, starts, int(lengths.max(initial=0)))
        tokens = operand.shape[2]
        if side == "kv" and graph.has("page_table_k"):
            tokens = graph.operand("page_table_k").shape[2] * operand.shape[2]
        return cls(lengths, None, tokens)

    def padded(self, array: NDArray[Any]) -> NDArray[Any]:
        """An operand as ``[B, H, S, ...]``."""
        if self.starts is None or self.lengths is None:
            return array
        padded = np.full((len(self.lengths), self.tokens, *array.shape[1:]), np.nan)
        for b, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            padded[b, :length] = array[start : start + length]
        return np.swapaxes(padded, 1, 2)

    def stored(self, padded: NDArray[Any], operand: Operand, rows: int) -> NDArray[Any]:
        """A result in its memory; rows that cuDNN does not write are 0 if it is cleared, or NaN.

        Args:
            rows: of a packed operand's memory.
        """
        if operand.ragged is None or self.starts is None or self.lengths is None:
            return _within(padded, operand)
        untouched = 0.0 if operand.zero_fill else np.nan
        packed = np.full((rows, operand.shape[1], operand.shape[3]), untouched)
        for b, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            packed[start : start + length] = np.swapaxes(padded[b, :, :length], 0, 1)
        return packed

    def has_bad_slack(self, array: NDArray[Any], b: int) -> bool:
        """Whether the rest of dense sequence ``b``'s last tile holds anything but numbers.

        What follows a packed sequence does not matter: H200, cuDNN 9.19, NaN in gaps, behind the
        last sequence, and in neighbouring sequences.
        """
        if self.lengths is None or self.starts is not None:
            return False
        length = int(self.lengths[b])
        end = -(-length // _TILE) * _TILE
        return not np.isfinite(array[b, :, length:end]).all()


def _within(padded: NDArray[Any], operand: Operand) -> NDArray[Any]:
    """Rows that the graph declares and no sequence has are cleared."""
    whole = np.zeros((*operand.shape[:2], max(operand.shape[2], padded.shape[2]), operand.shape[3]))
    whole[:, :, : padded.shape[2]] = padded
    return whole[:, :, : operand.shape[2]]


def _lengths(graph: GraphSpec, values: Values, side: str) -> NDArray[np.int64] | None:
    if f"cu_seq_len_{side}" in values:
        return np.diff(_whole(values[f"cu_seq_len_{side}"]))
    if f"seq_len_{side}" in values:
        # In a function of the logits one length is repeated with stride 0.
        return _whole(values[f"seq_len_{side}"][:, :1, :1, :1])
    return None


def _starts(graph: GraphSpec, values: Values, operand: Operand) -> NDArray[np.int64] | None:
    if operand.ragged is None:
        return None
    return token_offsets(graph, values, operand)[:-1]


def token_offsets(graph: GraphSpec, values: Values, operand: Operand) -> NDArray[np.int64]:
    """``[B + 1]``: the offsets of a packed operand, in tokens."""
    role = next(o.role for o in graph.operands if o.uid == operand.ragged)
    elements = _whole(values[role]) * operand.ragged_unit
    tokens, rest = np.divmod(elements, operand.strides[2])
    if rest.any():
        raise AssertionError(
            f"{role} of {operand.role} are no multiples of a token, {operand.strides[2]} elements"
        )
    return tokens


def _whole(array: NDArray[Any]) -> NDArray[np.int64]:
    return np.asarray(array).reshape(-1).astype(np.int64)
