"""The value of an expression, with whatever computes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .expression import Apply, Expression, Node


def evaluate(
    expression: Expression, ops: Mapping[str, Callable[..., Any]], leaf: Callable[[Node], Any]
) -> Any:
    """Compute an expression, each node once.

    Args:
        ops: the operations by their names in ``ops.OPS``.
        leaf: the value of a leaf, as an array of the framework: a 0-d one for a constant.
    """
    values: list[Any] = []
    for node in expression.nodes:
        if isinstance(node, Apply):
            values.append(ops[node.op](*(values[i] for i in node.operands)))
        else:
            values.append(leaf(node))
    return values[-1]


def array_ops(
    xp: ModuleType, to_float: Callable[[Any], Any], to_int: Callable[[Any], Any]
) -> dict[str, Callable[..., Any]]:
    """All operations, of ``numpy``, ``jax.numpy`` or ``torch``.

    Args:
        xp: the module.
        to_float: converts an array to the floating type that is computed in.
        to_int: converts an array to int32.
    """

    def relu(x: Any) -> Any:
        return xp.where(x > 0, x, xp.zeros_like(x))

    def softplus(x: Any) -> Any:
        return relu(x) + xp.log1p(xp.exp(-abs(x)))

    return {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "div": operator.truediv,
        "pow": operator.pow,
        "max": xp.maximum,
        "min": xp.minimum,
        "neg": operator.neg,
        "abs": operator.abs,
        "exp": xp.exp,
        "log": xp.log,
        "sqrt": xp.sqrt,
        "rsqrt": lambda x: 1 / xp.sqrt(x),
        "reciprocal": lambda x: 1 / x,
        "sin": xp.sin,
        "cos": xp.cos,
        "tan": xp.tan,
        "tanh": xp.tanh,
        "sigmoid": lambda x: 0.5 + 0.5 * xp.tanh(0.5 * x),
        "softplus": softplus,
        "relu": relu,
        "ceil": xp.ceil,
        "floor": xp.floor,
        "cmp_eq": operator.eq,
        "cmp_neq": operator.ne,
        "cmp_lt": operator.lt,
        "cmp_le": operator.le,
        "cmp_gt": operator.gt,
        "cmp_ge": operator.ge,
        "logical_and": operator.and_,
        "logical_or": operator.or_,
        "logical_not": operator.invert,
        "binary_select": lambda a, b, mask: xp.where(mask, a, b),
        "to_float": to_float,
        "to_int": to_int,
    }
