"""Functions of the logits that the library itself needs, and expressions put together."""

from __future__ import annotations

import math

from ..alibi import alibi_slopes
from ..mask import Band
from .expression import Apply, Expression, Grad, Node, Scalar, Score, Tensor
from .symbol import Symbol, apply
from .trace import Trace


def softcap(score: Symbol, cap: float | Symbol) -> Symbol:
    """``cap * tanh(score / cap)``.

    A Python number divides as a product with its reciprocal.
    """
    inner = score / cap if isinstance(cap, Symbol) else score * (1.0 / cap)
    return apply("tanh", inner) * cap


def alibi(score: Symbol, slopes: float | Symbol, distance: Symbol) -> Symbol:
    """``score - slopes * |distance|``.

    Args:
        slopes: of each head, ``[1 or B, Hq, 1, 1]``.
        distance: of a key from the query's diagonal, int32, in tokens: ``key - (query + shift)``.
    """
    return score - apply("to_float", abs(distance)) * slopes


def standard_slopes(head: Symbol, heads: int) -> float | Symbol:
    """``alibi.alibi_slopes(heads)`` as a function of the head, computed by exponentials."""
    if heads == 1:
        return alibi_slopes(1)[0]
    count = 1 << (heads.bit_length() - 1)
    number = apply("to_float", head)
    step = math.log(2.0) / count
    regular = apply("exp", (number + 1.0) * (-8.0 * step))
    if count == heads:
        return regular
    between = apply("exp", (number * 2.0 - (2.0 * count - 1.0)) * (-4.0 * step))
    return select(head < count, regular, between)


def band(distance: Symbol, band: Band) -> Symbol | None:
    """Where a band lets a query see a key, as ``Band`` defines it; None: everywhere.

    Args:
        distance: as for ``alibi``; the band's alignment is not read.
    """
    bounds = []
    if band.right is not None:
        bounds.append(distance <= band.right)
    if band.left is not None:
        bounds.append(distance >= -band.left)
    return every(*bounds)


def every(*conditions: Symbol) -> Symbol | None:
    """Whether all hold; None for no condition."""
    result: Symbol | None = None
    for condition in conditions:
        result = condition if result is None else result & condition
    return result


def select(mask: Symbol, first: float | Symbol, second: float | Symbol) -> Symbol:
    """``first`` where ``mask`` holds, else ``second``."""
    return apply("binary_select", first, second, mask)


def where_visible(visible: Symbol | None, score: Symbol) -> Symbol:
    """``score`` where ``visible`` holds, else -inf."""
    return score if visible is None else select(visible, score, float("-inf"))


def insert(
    trace: Trace,
    expression: Expression,
    *,
    score: Symbol | None = None,
    grad: Symbol | None = None,
    first_tensor: int = 0,
    first_scalar: int = 0,
) -> Symbol:
    """``expression`` as a symbol of ``trace``.

    Args:
        score: what stands for its score; None: the score itself.
        grad: the same for its incoming gradient.
        first_tensor: added to the positions of its auxiliary tensors.
        first_scalar: added to those of its scalars.
    """

    def leaf(node: Node) -> int:
        return _placed(node, trace, score, grad, first_tensor, first_scalar).index

    return Symbol(trace.builder, trace.builder.include(expression, leaf)[-1])


def _placed(
    node: Node,
    trace: Trace,
    score: Symbol | None,
    grad: Symbol | None,
    first_tensor: int,
    first_scalar: int,
) -> Symbol:
    match node:
        case Score():
            return trace.score if score is None else score
        case Grad():
            return trace.grad if grad is None else grad
        case Tensor(position, dtype):
            return trace.tensor(first_tensor + position, dtype)
        case Scalar(position):
            return trace.scalar(first_scalar + position)
        case Apply():
            raise TypeError("an operation is no leaf")
    return trace.leaf(node)


def substitute(
    outer: Expression, inner: Expression, *, first_tensor: int = 0, first_scalar: int = 0
) -> Expression:
    """``outer(inner(score))``.

    Args:
        first_tensor, first_scalar: added to the positions of ``outer``; ``inner`` keeps its own.
    """
    trace = Trace()
    score = insert(trace, inner)
    return trace.expression(
        insert(trace, outer, score=score, first_tensor=first_tensor, first_scalar=first_scalar)
    )


def identity() -> Expression:
    """The score itself."""
    return Expression((Score(),))
