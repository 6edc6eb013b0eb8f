"""A case's operands as they lie in memory, for any framework, and the problem they pose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DType
from ..layout import Shape, Strides, dense_in_order, reachable, row_major
from ..problem import AttentionProblem
from ..tensor import VECTOR_BYTES, TensorSpec
from .cases import Case, Inputs
from .reference import Array
from .rounding import decode, encode

_BSHD = (0, 2, 1, 3)


@dataclass(frozen=True)
class Placed:
    """A view into a buffer: what ``as_strided`` takes. Units are elements.

    PyTorch::

        buffer = torch.from_numpy(placed.buffer).to(device)  # .view(torch.bfloat16) if it is bits
        tensor = buffer.as_strided(placed.shape, placed.strides, placed.offset)

    Attributes:
        buffer: one axis; shared by the views of packed operands. Its start counts as aligned;
            elements outside the view are NaN. bfloat16 is stored as ``uint16`` bits.
        shape, strides: of the view ``[B, H, S, D]``.
        offset: of the view's first element.
        dtype: element type.
    """

    buffer: NDArray[Any]
    shape: Shape
    strides: Strides
    offset: int
    dtype: DType

    @property
    def spec(self) -> TensorSpec:
        """The view as the library sees it."""
        return _View(self.shape, self.strides, self.offset).spec(self.dtype)

    @property
    def stored(self) -> NDArray[Any]:
        """The view itself, in the buffer's element type."""
        steps = tuple(stride * self.buffer.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :], self.shape, steps)

    def read(self) -> Array:
        """The numbers that the view shows."""
        return decode(self.stored, self.dtype)


def place(case: Case, inputs: Inputs) -> tuple[Placed, Placed, Placed]:
    """Query, key and value laid out as the case says. ``inputs`` need not be the case's own.

    A gradient of the output has no layout of its own: give it as it is, row-major.
    """
    views = _views(case)
    sizes = [view.offset + reachable(view.shape, view.strides) for view in views]
    if case.layout == "packed_qkv":
        buffers = [_filled_with_nan(max(sizes), case.dtype)] * len(views)
    else:
        buffers = [_filled_with_nan(size, case.dtype) for size in sizes]
    query, key, value = (
        Placed(buffer, *view, case.dtype) for buffer, view in zip(buffers, views, strict=True)
    )
    for placed, array in ((query, inputs.query), (key, inputs.key), (value, inputs.value)):
        placed.stored[...] = encode(array, case.dtype)
    return query, key, value


def problem_of(
    case: Case, *, training: bool = False, return_lse: bool = False, deterministic: bool = False
) -> AttentionProblem:
    """The problem of a case whose operands are placed as its layout says."""
    query, key, value = (view.spec(case.dtype) for view in _views(case))
    return AttentionProblem.of(
        query,
        key,
        value,
        band=case.band,
        training=training,
        return_lse=return_lse,
        deterministic=deterministic,
    )


class _View(NamedTuple):
    shape: Shape
    strides: Strides
    offset: int = 0

    def spec(self, dtype: DType) -> TensorSpec:
        address = self.offset * dtype.itemsize
        alignment = min(address & -address, VECTOR_BYTES) if address else VECTOR_BYTES
        return TensorSpec(self.shape, self.strides, dtype, alignment)


def _views(case: Case) -> tuple[_View, _View, _View]:
    """Of query, key and value."""
    q, k, v = case.query_shape, case.key_shape, case.value_shape
    if case.layout == "packed_qkv":
        _, heads, tokens, head_dim = q
        row = heads * head_dim
        strides = (tokens * 3 * row, head_dim, 3 * row, 1)
        return _View(q, strides), _View(k, strides, row), _View(v, strides, 2 * row)
    if case.layout == "bshd":
        return _in_order(q), _in_order(k), _in_order(v)
    if case.layout == "expanded_kv":
        return _View(q, row_major(q)), _expanded(k), _expanded(v)
    offset = 1 if case.layout == "unaligned" else 0
    return (
        _View(q, row_major(q), offset),
        _View(k, row_major(k), offset),
        _View(v, row_major(v), offset),
    )


def _in_order(shape: Shape) -> _View:
    return _View(shape, dense_in_order(shape, _BSHD))


def _expanded(shape: Shape) -> _View:
    batch, _, tokens, head_dim = shape
    outer, _, row, column = row_major((batch, 1, tokens, head_dim))
    return _View(shape, (outer, 0, row, column))


def _filled_with_nan(count: int, dtype: DType) -> NDArray[Any]:
    return encode(np.full(count, np.nan), dtype)
