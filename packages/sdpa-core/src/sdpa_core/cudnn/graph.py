"""A cuDNN graph described as plain values, before cuDNN is involved.

A description is what the builders make and what everything else is checked against: cuDNN's
frontend lowers it, the plan's bindings are its operands, and on machines without a GPU the fake
executor compares each call with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..dtypes import DType
from ..layout import Shape, Strides, reachable
from ..tensor import TensorSpec

if TYPE_CHECKING:
    from ..score_mod import Expression


class OperandKind(StrEnum):
    INPUT = "input"
    OUTPUT = "output"
    #: A float32 read from host memory at launch.
    HOST_SCALAR = "host scalar"


class Rule(StrEnum):
    """How an operand is computed from an int32 array of the caller's: see ``Derived``."""

    #: Lengths, as they are.
    LENGTHS = "lengths"
    #: Differences of ``cu_seqlens``.
    DIFFERENCES = "differences"
    #: ``multiplier * cu_seqlens``: elements instead of tokens.
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True)
class Derived:
    """An operand that is computed on the device, from what the caller gave, before each launch.

    Equivalent NumPy, for ``count`` entries of which the caller's batch may have fewer::

        LENGTHS:      padded with 0 to count
        DIFFERENCES:  np.diff(source), padded with 0 to count
        OFFSETS:      multiplier * source.astype(dtype), padded with its last entry to count

    Attributes:
        rule: see above.
        source: name of the caller's array, one of ``AttentionProblem.inputs``.
        multiplier: elements of a token.
    """

    rule: Rule
    source: str
    multiplier: int = 1


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of the graph.

    Attributes:
        uid: cuDNN's number of the tensor.
        role: its name, ``query``.
        kind: who provides it.
        shape, strides: in elements, as cuDNN sees them.
        dtype: element type.
        constant: for what is not the caller's: the value that fills it (for instance sequence
            lengths that only switch on a mask), or a scalar's value.
        derived: for what is computed from the caller's arrays.
        ragged: uid of the operand that says where each sequence starts; None: dense.
        ragged_unit: elements that one unit of those offsets stands for.
        zero_fill: a result that cuDNN leaves unwritten in places; it is cleared first.
    """

    uid: int
    role: str
    kind: OperandKind
    shape: Shape
    strides: Strides
    dtype: DType
    constant: int | float | None = None
    derived: Derived | None = None
    ragged: int | None = None
    ragged_unit: int = 1
    zero_fill: bool = False

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, self.strides, self.dtype)

    @property
    def extent(self) -> int:
        """Bytes that must be addressable at the operand's address; 0 for a host scalar.

        A ragged operand declares room for the longest batch of its bucket; what one batch needs,
        only its offsets tell, which are on the device. At least one token's row is there.
        """
        if self.kind is OperandKind.HOST_SCALAR:
            return 0
        if self.ragged is None:
            return self.spec.nbytes
        row = (self.shape[1], self.shape[3]), (self.strides[1], self.strides[3])
        return reachable(*row) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """One attention operation.

    Attributes:
        operation: the frontend's method, ``sdpa`` or ``sdpa_backward``.
        io_dtype: element type of the operands that carry no type of their own.
        operands: in ascending uid.
        options: keyword arguments of the operation that are not tensors, sorted by name.
        score_mod: the function of the logits that the graph holds, masks included; None for none.
        score_mod_gradient: its gradient, for the backward pass.
        score_mod_tensors: the role of the operand behind each auxiliary tensor of these two.
        whole_keys: leave out plans that split the keys of a query.
    """

    operation: str
    io_dtype: DType
    operands: tuple[Operand, ...]
    options: tuple[tuple[str, object], ...]
    score_mod: Expression | None = None
    score_mod_gradient: Expression | None = None
    score_mod_tensors: tuple[str, ...] = ()
    whole_keys: bool = False

    def operand(self, role: str) -> Operand:
        return next(operand for operand in self.operands if operand.role == role)

    def has(self, role: str) -> bool:
        return any(operand.role == role for operand in self.operands)
