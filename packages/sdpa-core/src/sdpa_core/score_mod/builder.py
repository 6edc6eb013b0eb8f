"""Making expressions node by node: types are checked, equal nodes are shared, trivia drop out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .expression import Apply, Constant, Expression, Node, Type, constant
from .ops import OPS, Op, Typing

_NUMBERS = (Type.FLOAT, Type.INT)


class Builder:
    """A growing set of nodes, each known by its index; none is there twice."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._index: dict[Node, int] = {}

    def add(self, node: Node) -> int:
        """The index of a node, which is added if it is new."""
        index = self._index.setdefault(node, len(self.nodes))
        if index == len(self.nodes):
            self.nodes.append(node)
        return index

    def constant(self, value: float | bool) -> int:
        return self.add(constant(value))

    def type(self, index: int) -> Type:
        return self.nodes[index].type

    def apply(self, name: str, *operands: int) -> int:
        """The index of an operation's result, simplified where that changes no value.

        Raises:
            TypeError: an operand is of the wrong type.
        """
        op = OPS[name]
        operands, result = self._typed(op, operands)
        folded = self._fold(op, operands, result)
        if folded is None:
            folded = self._simplify(name, operands)
        if folded is not None:
            return folded
        return self.add(Apply(name, operands, result))

    def expression(self, result: int) -> Expression:
        """What ``result`` is computed from, numbered from it."""
        order: dict[int, int] = {}
        stack = [(result, False)]
        while stack:
            index, ready = stack.pop()
            if index in order:
                continue
            node = self.nodes[index]
            if ready or not isinstance(node, Apply):
                order[index] = len(order)
                continue
            stack.append((index, True))
            stack.extend((operand, False) for operand in reversed(node.operands))
        return Expression(tuple(renumber(self.nodes[i], order.__getitem__) for i in order))

    def include(self, expression: Expression, leaf: Callable[[Node], int]) -> list[int]:
        """Add an expression's nodes; ``leaf`` says what stands for each of its leaves.

        Returns:
            The index here of each of its nodes; the last is its result.
        """
        here: list[int] = []
        for node in expression.nodes:
            if isinstance(node, Apply):
                here.append(self.apply(node.op, *(here[i] for i in node.operands)))
            else:
                here.append(leaf(node))
        return here

    def _typed(self, op: Op, operands: tuple[int, ...]) -> tuple[tuple[int, ...], Type]:
        """The operands after conversion, and the result's type."""
        if len(operands) != len(op.operands):
            raise TypeError(f"{op.name} takes {len(op.operands)} operands, got {len(operands)}")
        types = [self.type(i) for i in operands]
        match op.typing:
            case Typing.LOGICAL:
                self._expect(op, types, (Type.BOOL,))
                return operands, Type.BOOL
            case Typing.TO_FLOAT:
                return operands, Type.FLOAT
            case Typing.TO_INT:
                self._expect(op, types, (Type.INT, Type.BOOL))
                return operands, Type.INT
            case Typing.SELECT:
                self._expect(op, types[:2], _NUMBERS)
                self._expect(op, types[2:], (Type.BOOL,), operand=2)
                first, second = self._common(operands[:2])
                return (first, second, operands[2]), self.type(first)
        self._expect(op, types, _NUMBERS)
        if op.typing is Typing.FLOAT:
            return tuple(self._to_float(i) for i in operands), Type.FLOAT
        operands = self._common(operands)
        compares = op.typing is Typing.COMPARISON
        return operands, Type.BOOL if compares else self.type(operands[0])

    def _expect(
        self, op: Op, types: Iterable[Type], allowed: tuple[Type, ...], operand: int = 0
    ) -> None:
        for place, given in enumerate(types, operand):
            if given not in allowed:
                raise TypeError(
                    f"{op.name}: operand {op.operands[place]} is {given}, "
                    f"expected {' or '.join(allowed)}"
                )

    def _common(self, operands: tuple[int, ...]) -> tuple[int, ...]:
        """Ints beside a float become floats."""
        if any(self.type(i) is Type.FLOAT for i in operands):
            return tuple(self._to_float(i) for i in operands)
        return operands

    def _to_float(self, index: int) -> int:
        return index if self.type(index) is Type.FLOAT else self.apply("to_float", index)

    def _fold(self, op: Op, operands: tuple[int, ...], result: Type) -> int | None:
        """The constant that an operation on constants gives, if it is representable."""
        nodes = [self.nodes[i] for i in operands]
        values = [node.value for node in nodes if isinstance(node, Constant)]
        if len(values) != len(nodes):
            return None
        try:
            value = op.fold(*values)
            return self.constant(float(value) if result is Type.FLOAT else value)
        except (ArithmeticError, ValueError):  # infinite, undefined, or too large
            return None

    def _simplify(self, name: str, operands: tuple[int, ...]) -> int | None:
        """The index of a simpler node with the same value, for every operand, NaN included."""
        if name in ("to_float", "to_int"):
            same = self.type(operands[0]) is _CONVERTED[name]
            return operands[0] if same else None
        if name == "binary_select":
            return self._simplify_select(*operands)
        if name in ("neg", "logical_not"):
            node = self.nodes[operands[0]]
            twice = isinstance(node, Apply) and node.op == name
            return node.operands[0] if twice and isinstance(node, Apply) else None
        if len(operands) == 2:
            return self._simplify_pair(name, *operands)
        return None

    def _simplify_select(self, first: int, second: int, mask: int) -> int | None:
        if first == second:
            return first
        chosen = self._value(mask)
        return None if chosen is None else first if chosen else second

    def _simplify_pair(self, name: str, first: int, second: int) -> int | None:
        if first == second and name in ("max", "min", "logical_and", "logical_or"):
            return first
        left, right = self._value(first), self._value(second)
        if right is not None:
            if _RIGHT_NEUTRAL.get(name) == right:
                return first
            if name == "pow" and right == 2:
                return self.apply("mul", first, first)
            if _ABSORBING.get(name) is right:
                return second
        if left is not None:
            if name in _COMMUTATIVE and _RIGHT_NEUTRAL.get(name) == left:
                return second
            if _ABSORBING.get(name) is left:
                return first
            if name == "mul" and left == -1:
                return self.apply("neg", second)
        if name == "mul" and right == -1:
            return self.apply("neg", first)
        return None

    def _value(self, index: int) -> float | bool | None:
        node = self.nodes[index]
        return node.value if isinstance(node, Constant) else None


def renumber(node: Node, index: Callable[[int], int]) -> Node:
    """The node with other indices of its operands."""
    if not isinstance(node, Apply):
        return node
    return Apply(node.op, tuple(index(i) for i in node.operands), node.type)


_CONVERTED = {"to_float": Type.FLOAT, "to_int": Type.INT}

#: ``x op value`` is ``x``. Not ``x * 0``: it is NaN for an infinite or undefined ``x``.
_RIGHT_NEUTRAL: dict[str, float | bool] = {
    "add": 0,
    "sub": 0,
    "mul": 1,
    "div": 1,
    "pow": 1,
    "logical_and": True,
    "logical_or": False,
}
#: ``x op value`` is ``value``.
_ABSORBING = {"logical_and": False, "logical_or": True}
_COMMUTATIVE = frozenset({"add", "mul", "max", "min", "logical_and", "logical_or"})
