"""A view into a buffer of any element type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...dtypes import FLOATING, DType
from ...layout import Shape, Strides, reachable, row_major
from ...tensor import VECTOR_BYTES, TensorSpec
from ..layouts import View
from ..rounding import decode, encode


@dataclass(frozen=True)
class Placed:
    """A view into a buffer: what ``as_strided`` takes. Units are elements.

    PyTorch::

        buffer = torch.from_numpy(placed.buffer).to(device)  # .view(torch.bfloat16) if it is bits
        tensor = buffer.as_strided(placed.shape, placed.strides, placed.offset)

    Attributes:
        buffer: one axis; shared by the views of packed operands. Its start counts as aligned;
            elements outside the view are NaN. bfloat16 is stored as ``uint16`` bits.
        shape, strides: of the view: ``[B, H, S, D]``, ``[T, H, D]`` of packed sequences,
            ``[pages, page_size, H, D]`` of pools.
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
        return spec_of(View(self.shape, self.strides, self.offset), self.dtype)

    @property
    def stored(self) -> NDArray[Any]:
        """The view itself, in the buffer's element type."""
        steps = tuple(stride * self.buffer.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :], self.shape, steps)

    def read(self) -> NDArray[np.float64]:
        """The numbers that the view shows."""
        return decode(self.stored, self.dtype)


def dense(array: ArrayLike, dtype: DType) -> Placed:
    """A row-major array."""
    shape = np.shape(array)
    return placed_in(array, View(shape, row_major(shape)), dtype)


def placed_in(array: ArrayLike, view: View, dtype: DType) -> Placed:
    """The array in a buffer of its own; elements outside the view are NaN, if the type has one."""
    size = view.offset + reachable(view.shape, view.strides)
    buffer = encode(np.zeros(size), dtype)
    if dtype in FLOATING:
        buffer = filled_with_nan(size, dtype)
    placed = Placed(buffer, *view, dtype)
    placed.stored[...] = encode(array, dtype)
    return placed


def filled_with_nan(count: int, dtype: DType) -> NDArray[Any]:
    """A buffer of so many elements."""
    return encode(np.full(count, np.nan), dtype)


def spec_of(view: View, dtype: DType) -> TensorSpec:
    """A view into an aligned buffer, as the library sees it."""
    address = view.offset * dtype.itemsize
    alignment = min(address & -address, VECTOR_BYTES) if address else VECTOR_BYTES
    return TensorSpec(view.shape, view.strides, dtype, alignment)
