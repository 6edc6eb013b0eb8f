"""The form of an expression that cuDNN accepts: of equal values, but with full first operands."""

from __future__ import annotations

from collections import Counter

from ..score_mod.builder import Builder
from ..score_mod.expression import (
    Apply,
    Axis,
    Constant,
    Expression,
    Grad,
    Index,
    Node,
    Score,
    Tensor,
    Type,
)

#: ``a op b`` is ``b mirrored a``.
_MIRRORED = {
    "add": "add",
    "mul": "mul",
    "max": "max",
    "min": "min",
    "cmp_eq": "cmp_eq",
    "cmp_neq": "cmp_neq",
    "cmp_lt": "cmp_gt",
    "cmp_le": "cmp_ge",
    "cmp_gt": "cmp_lt",
    "cmp_ge": "cmp_le",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
}


def cudnn_form(expression: Expression, *, backward: bool = False) -> Expression:
    """An expression of the same values in the form that cuDNN accepts.

    cuDNN 9.28 wants a first operand with the shape of the logits: it refuses ``1 - score``,
    ``2 / score``, ``select(0, score, mask)``, and whatever combines broadcast operands only. Such
    operations are turned around, or the operand is given the full shape first. So is an auxiliary
    tensor with several uses, which the backward pass refuses for shapes like ``[B, 1, Sq, 1]`` on
    compute capability 9.0. On 8.0 and 12.0 it refuses ``[B, 1, 1, 1]`` and ``[B, 1, Sq, 1]`` in any
    form, but takes ``[B, Hq, 1, 1]`` and ``[B, 1, 1, Skv]``.

    Args:
        backward: the expression is a gradient. One that is the same whatever ``Grad`` is (of
            ``floor``) mentions it nevertheless: else cuDNN finds no product for dK and refuses.
    """
    return _Form(expression).result(backward)


class _Form:
    """The nodes of an expression once more, with a note of which have the logits' shape."""

    def __init__(self, expression: Expression) -> None:
        self._builder = Builder()
        self._full: dict[int, bool] = {}
        uses = Counter(i for node in expression.nodes for i in getattr(node, "operands", ()))
        here: list[int] = []
        for index, node in enumerate(expression.nodes):
            if isinstance(node, Apply):
                here.append(self._operation(node.op, tuple(here[i] for i in node.operands)))
            elif isinstance(node, Tensor) and uses[index] > 1:
                here.append(self._spread(self._builder.add(node)))
            else:
                here.append(self._builder.add(node))
        self._result = here[-1]

    def result(self, backward: bool) -> Expression:
        result = self._result
        if backward and Grad() not in self._builder.nodes:
            result = self._select(self._builder.add(Grad()), result, self._never())
        return self._builder.expression(self._spread(result))

    def _never(self) -> int:
        """False for every logit."""
        position = self._builder.add(Index(Axis.QUERY))
        return self._builder.apply("cmp_lt", position, self._builder.constant(0))

    def _operation(self, name: str, operands: tuple[int, ...]) -> int:
        if name == "binary_select":
            return self._select(*operands)
        first, *rest = operands
        if not self._is_full(first):
            if rest and self._is_full(rest[0]):
                turned = self._turned(name, first, rest[0])
                if turned is not None:
                    return turned
            first = self._spread(first)
        return self._builder.apply(name, first, *rest)

    def _turned(self, name: str, first: int, second: int) -> int | None:
        """``first op second`` with the second in front, if there is such an operation."""
        if name == "sub":
            return self._builder.apply("add", self._builder.apply("neg", second), first)
        if name == "div":
            # Also because the gradient of ``2 / x`` with the 2 spread out was wrong (H200, 9.19).
            return self._builder.apply("mul", self._builder.apply("reciprocal", second), first)
        if name in _MIRRORED:
            return self._builder.apply(_MIRRORED[name], second, first)
        return None

    def _select(self, first: int, second: int, mask: int) -> int:
        """A selection, of which the second operand may be a constant.

        cuDNN 9.28 sees a causal mask in ``select(score, fill, row >= column)`` in the backward
        pass, and its kernel then does not compile if ``fill`` is a tensor of a smaller shape.
        """
        mask = self._spread(mask)
        if not self._is_full(first) and self._is_full(second):
            first, second = second, first
            mask = self._builder.apply("logical_not", mask)
        if not isinstance(self._builder.nodes[second], Constant):
            second = self._spread(second)
        return self._builder.apply("binary_select", self._spread(first), second, mask)

    def _spread(self, index: int) -> int:
        """The same values in the logits' shape.

        Floats are added to zeros that are floats from the start: beside a product of integers that
        is converted, a constant is misread in the backward pass (H200, cuDNN 9.19).
        """
        if self._is_full(index):
            return index
        if self._builder.type(index) is Type.BOOL:
            return self._builder.apply("logical_or", self._never(), index)
        position, zero = self._builder.add(Index(Axis.QUERY)), 0.0
        if self._builder.type(index) is Type.FLOAT:
            position = self._builder.apply("to_float", position)
        else:
            zero = 0
        zeros = self._builder.apply("mul", position, self._builder.constant(zero))
        return self._builder.apply("add", zeros, index)

    def _is_full(self, index: int) -> bool:
        if index not in self._full:
            self._full[index] = self._computed_full(self._builder.nodes[index])
        return self._full[index]

    def _computed_full(self, node: Node) -> bool:
        if isinstance(node, Apply):
            return any(self._is_full(operand) for operand in node.operands)
        return isinstance(node, (Score, Grad, Index))
