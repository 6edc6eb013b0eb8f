"""The operations of an expression, as data.

The names are the methods of ``cudnn.pygraph``, and the operands' names its keywords, in
nvidia-cudnn-frontend 1.28 to 1.32. All of them build inside the ``score_mod`` of ``sdpa`` and
``sdpa_backward`` with cuDNN 9.28 for an H200.

Left out on purpose: ``mod`` (cuDNN does not say which sign it takes), ``erf``, ``elu``, ``swish``
and the ``gelu`` family (activations; NumPy lacks ``erf``), ``add_square``, ``scale`` and ``bias``
(other spellings of sums and products), casts from float to int (their rounding is not documented),
and the ``*_backward`` operations (gradients are expressions of their own).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Typing(Enum):
    """Which types an operation takes and gives. An int where a float is needed is converted."""

    #: Floats, to a float.
    FLOAT = auto()
    #: Ints or floats, to what the operands are.
    NUMBER = auto()
    #: Ints or floats, to a bool.
    COMPARISON = auto()
    #: Bools, to a bool.
    LOGICAL = auto()
    #: Two ints or floats and a bool, to what the first two are.
    SELECT = auto()
    #: Anything, to a float.
    TO_FLOAT = auto()
    #: An int or a bool, to an int.
    TO_INT = auto()


@dataclass(frozen=True, slots=True)
class Op:
    """An operation.

    Attributes:
        name: its name here, in the facade, and in the mapping that evaluates.
        operands: the keywords of its operands.
        typing: its types.
        fold: the operation on Python numbers.
        method: the name in cuDNN's graph.
    """

    name: str
    operands: tuple[str, ...]
    typing: Typing
    fold: Callable[..., Any]
    method: str


_ONE = ("input",)
_TWO = ("a", "b")
_PAIR = ("input0", "input1")
_COMPARED = ("input", "comparison")


def _sigmoid(x: float) -> float:
    return 0.5 + 0.5 * math.tanh(0.5 * x)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


_TABLE: tuple[tuple[str, tuple[str, ...], Typing, Callable[..., Any]], ...] = (
    ("add", _TWO, Typing.NUMBER, operator.add),
    ("sub", _TWO, Typing.NUMBER, operator.sub),
    ("mul", _TWO, Typing.NUMBER, operator.mul),
    ("div", _TWO, Typing.FLOAT, operator.truediv),
    ("pow", _PAIR, Typing.FLOAT, math.pow),
    ("max", _PAIR, Typing.NUMBER, max),
    ("min", _PAIR, Typing.NUMBER, min),
    ("neg", _ONE, Typing.NUMBER, operator.neg),
    ("abs", _ONE, Typing.NUMBER, abs),
    ("exp", _ONE, Typing.FLOAT, math.exp),
    ("log", _ONE, Typing.FLOAT, math.log),
    ("sqrt", _ONE, Typing.FLOAT, math.sqrt),
    ("rsqrt", _ONE, Typing.FLOAT, lambda x: 1 / math.sqrt(x)),
    ("reciprocal", _ONE, Typing.FLOAT, lambda x: 1 / x),
    ("sin", _ONE, Typing.FLOAT, math.sin),
    ("cos", _ONE, Typing.FLOAT, math.cos),
    ("tan", _ONE, Typing.FLOAT, math.tan),
    ("tanh", _ONE, Typing.FLOAT, math.tanh),
    ("sigmoid", _ONE, Typing.FLOAT, _sigmoid),
    ("softplus", _ONE, Typing.FLOAT, _softplus),
    ("relu", _ONE, Typing.FLOAT, lambda x: max(x, 0.0)),
    ("ceil", _ONE, Typing.FLOAT, lambda x: float(math.ceil(x))),
    ("floor", _ONE, Typing.FLOAT, lambda x: float(math.floor(x))),
    ("cmp_eq", _COMPARED, Typing.COMPARISON, operator.eq),
    ("cmp_neq", _COMPARED, Typing.COMPARISON, operator.ne),
    ("cmp_lt", _COMPARED, Typing.COMPARISON, operator.lt),
    ("cmp_le", _COMPARED, Typing.COMPARISON, operator.le),
    ("cmp_gt", _COMPARED, Typing.COMPARISON, operator.gt),
    ("cmp_ge", _COMPARED, Typing.COMPARISON, operator.ge),
    ("logical_and", _TWO, Typing.LOGICAL, operator.and_),
    ("logical_or", _TWO, Typing.LOGICAL, operator.or_),
    ("logical_not", _ONE, Typing.LOGICAL, operator.not_),
    ("binary_select", (*_PAIR, "mask"), Typing.SELECT, lambda a, b, mask: a if mask else b),
    ("to_float", _ONE, Typing.TO_FLOAT, float),
    ("to_int", _ONE, Typing.TO_INT, int),
)

#: A conversion is cuDNN's identity with another type of result.
_METHODS = {"to_float": "identity", "to_int": "identity"}

#: All operations by name.
OPS = {row[0]: Op(*row, method=_METHODS.get(row[0], row[0])) for row in _TABLE}
