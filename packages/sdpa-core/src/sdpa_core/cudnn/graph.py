"""A cuDNN graph described as plain values, before cuDNN is involved.

A description is what the builders make and what everything else is checked against: cuDNN's
frontend lowers it, the plan's bindings are its operands, and on machines without a GPU the fake
executor compares each call with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..dtypes import DType
from ..layout import Shape, Strides
from ..tensor import TensorSpec


class OperandKind(StrEnum):
    INPUT = "input"
    OUTPUT = "output"
    #: A float32 read from host memory at launch.
    HOST_SCALAR = "host scalar"


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of the graph.

    Attributes:
        uid: cuDNN's number of the tensor.
        role: its name, ``query``.
        kind: who provides it.
        shape, strides: in elements, as cuDNN sees them.
        dtype: element type.
        constant: for an input that is not the caller's: the value that fills it (for instance
            sequence lengths that only switch on a mask).
    """

    uid: int
    role: str
    kind: OperandKind
    shape: Shape
    strides: Strides
    dtype: DType
    constant: int | None = None

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, self.strides, self.dtype)

    @property
    def extent(self) -> int:
        """Bytes that must be addressable at the operand's address; 0 for a host scalar."""
        return 0 if self.kind is OperandKind.HOST_SCALAR else self.spec.nbytes


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """One attention operation.

    Attributes:
        operation: the frontend's method, ``sdpa`` or ``sdpa_backward``.
        io_dtype: element type of the operands that carry no type of their own.
        operands: in ascending uid.
        options: keyword arguments of the operation that are not tensors, sorted by name.
        workspace_limit: consider only plans with at most so many bytes of workspace; None for all.
    """

    operation: str
    io_dtype: DType
    operands: tuple[Operand, ...]
    options: tuple[tuple[str, object], ...]
    workspace_limit: int | None = None

    def operand(self, role: str) -> Operand:
        return next(operand for operand in self.operands if operand.role == role)

    def has(self, role: str) -> bool:
        return any(operand.role == role for operand in self.operands)
