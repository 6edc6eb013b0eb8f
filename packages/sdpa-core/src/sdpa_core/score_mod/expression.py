"""A function of the logits as a value: what a ``score_mod`` callback computes, and nothing else.

An expression is a directed acyclic graph, flattened: a tuple of nodes, each of which refers to
earlier ones by their index; the last is the result. It is hashable and comparable, and equal
exactly for equal computations with equal constants, so it is part of a plan's key as it stands.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..dtypes import FLOATING, DType

_INT32 = range(-(2**31), 2**31)


class Type(StrEnum):
    """The type of a node's value. Sixteen-bit tensors are float32 from here on."""

    FLOAT = "float32"
    INT = "int32"
    BOOL = "bool"


class Axis(StrEnum):
    """An axis of the logits, in order: ``[batch, head, query, key]``."""

    BATCH = "batch"
    HEAD = "head"
    QUERY = "query"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Score:
    """The scaled logits, float32 ``[B, Hq, Sq, Skv]``."""

    @property
    def type(self) -> Type:
        return Type.FLOAT


@dataclass(frozen=True, slots=True)
class Grad:
    """The gradient of the loss by the function's result, float32 ``[B, Hq, Sq, Skv]``."""

    @property
    def type(self) -> Type:
        return Type.FLOAT


@dataclass(frozen=True, slots=True)
class Index:
    """Position along an axis of the logits, int32, from 0."""

    axis: Axis

    @property
    def type(self) -> Type:
        return Type.INT


@dataclass(frozen=True, slots=True)
class Tensor:
    """An auxiliary tensor that broadcasts to the logits.

    Attributes:
        position: which of the auxiliary tensors.
        dtype: element type in memory; 16-bit floats are read as float32.
    """

    position: int
    dtype: DType

    @property
    def type(self) -> Type:
        return tensor_type(self.dtype)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A float32 given at launch.

    Attributes:
        position: which of the scalars.
    """

    position: int

    @property
    def type(self) -> Type:
        return Type.FLOAT


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that belongs to the plan. ``constant`` makes one; -0.0 is stored as 0.0.

    Attributes:
        value: a finite float, ``inf`` or ``-inf``, an int, or a bool.
        type: tells 1, 1.0 and True apart, which Python takes for equal.
    """

    value: float | bool
    type: Type


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation of ``ops.OPS`` on earlier nodes.

    Attributes:
        op: its name.
        operands: indices of its operands.
        type: of the result.
    """

    op: str
    operands: tuple[int, ...]
    type: Type


Leaf = Score | Grad | Index | Tensor | Scalar | Constant
Node = Leaf | Apply


@dataclass(frozen=True, slots=True)
class Expression:
    """Nodes in the order of evaluation; the last is the result, of type float32.

    ``Builder.expression`` makes these: with no node that the result does not need, no node twice,
    and numbered from the result, so that the order in which a callback computed does not matter.
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.nodes or self.nodes[-1].type is not Type.FLOAT:
            raise TypeError("the result of an expression is of type float32")
        for index, node in enumerate(self.nodes):
            if isinstance(node, Apply) and not all(0 <= i < index for i in node.operands):
                raise ValueError(f"node {index} ({node.op}) refers to a later node")

    def leaves(self) -> Iterator[Leaf]:
        return (node for node in self.nodes if not isinstance(node, Apply))

    def tensors(self) -> tuple[int, ...]:
        """Positions of the auxiliary tensors in use, ascending."""
        return tuple(sorted(leaf.position for leaf in self.leaves() if isinstance(leaf, Tensor)))

    def scalars(self) -> tuple[int, ...]:
        """Positions of the scalars in use, ascending."""
        return tuple(sorted(leaf.position for leaf in self.leaves() if isinstance(leaf, Scalar)))

    def constants(self) -> tuple[Constant, ...]:
        """The constants in use, in the order of evaluation."""
        return tuple(leaf for leaf in self.leaves() if isinstance(leaf, Constant))


#: What ``tensor_type`` takes, in words.
TENSOR_TYPES = (
    "float32, float16, bfloat16 or int32 "
    "(instead of a bool tensor, an int32 tensor that is compared with 0)"
)


def tensor_type(dtype: DType) -> Type:
    """The type of an auxiliary tensor's values.

    No bools: cuDNN 9.28 compiles no kernel that reads a BOOLEAN tensor in ``score_mod``, and ends
    the process (SIGFPE) while it plans for one of the logits' full shape.

    Raises:
        TypeError: no expression can read this element type.
    """
    if dtype in FLOATING and dtype is not DType.FLOAT64:
        return Type.FLOAT
    if dtype is DType.INT32:
        return Type.INT
    raise TypeError(f"an auxiliary tensor of score_mod is {dtype}; expected {TENSOR_TYPES}")


def constant(value: float | bool) -> Constant:
    """The node of a Python number.

    Raises:
        ValueError: NaN, or it does not fit float32 or int32.
    """
    if isinstance(value, bool):
        return Constant(value, Type.BOOL)
    if isinstance(value, int):
        if value not in _INT32:
            raise ValueError(f"score_mod holds the constant {value}, which does not fit int32")
        return Constant(int(value), Type.INT)
    value = float(value)
    if math.isnan(value):
        raise ValueError("score_mod holds the constant NaN")
    try:
        struct.pack("<f", value)
    except OverflowError:
        raise ValueError(
            f"score_mod holds the constant {value}, which does not fit float32; "
            f"for a logit that gets no weight use -inf"
        ) from None
    return Constant(value + 0.0, Type.FLOAT)
