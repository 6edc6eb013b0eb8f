"""What the library needs to know of an operand: everything but its address and its contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .dtypes import DType
from .layout import Shape, Strides, canonical_strides, dense_like, reachable, row_major

#: cuDNN reads operands in vectors of so many bytes (cudnn-frontend issue 1571, pytorch PR 194818).
VECTOR_BYTES = 16


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and strides in elements, element type, and the alignment of the first element.

    Attention operands are always described as ``[batch, heads, tokens, head_dim]``; another
    order in memory (``[batch, tokens, heads, head_dim]``, packed QKV, ...) is a matter of strides.

    Attributes:
        shape: lengths of the axes, in elements.
        strides: distance between neighbours along each axis, in elements.
        dtype: element type.
        alignment: the largest power of two, at most 16, that divides the address, in bytes.
    """

    shape: Shape
    strides: Strides
    dtype: DType
    alignment: int = VECTOR_BYTES

    @classmethod
    def dense(cls, shape: Sequence[int], dtype: DType) -> TensorSpec:
        """A row-major, aligned tensor."""
        return cls(tuple(shape), row_major(shape), dtype)

    def like(self, shape: Sequence[int], dtype: DType | None = None) -> TensorSpec:
        """A dense, aligned tensor of ``shape`` stored in this tensor's order of axes."""
        strides = dense_like(shape, self.shape, self.strides)
        return TensorSpec(tuple(shape), canonical_strides(shape, strides), dtype or self.dtype)

    def canonical(self) -> TensorSpec:
        """The same tensor with the strides of length-1 axes spelled one way."""
        return replace(self, strides=canonical_strides(self.shape, self.strides))

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def nbytes(self) -> int:
        """Bytes that must be addressable from the first element on."""
        return reachable(self.shape, self.strides) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)} strides {list(self.strides)}"
