"""The gradient of an expression by the score, as another expression.

Reverse mode over the graph. Where a function is not smooth, the convention is that of PyTorch and
JAX: ``abs`` has slope 0 at 0, ``relu`` too, ``max`` and ``min`` share equally among equals,
``floor`` and ``ceil`` have slope 0 everywhere. ``binary_select`` passes the gradient to the branch
that is taken. It does so after everything else: the branch's derivative is computed for every
logit and then selected, never multiplied with a zero, so that a branch that is infinite or
undefined where it is not taken (``log`` of a masked logit, -inf itself) leaves no NaN. Conditions
and integers have no gradient, neither have auxiliary tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .expression import Apply, Expression, Leaf, Node, Score, Type
from .symbol import Symbol, apply
from .trace import Trace

#: Gives the operand's share from the operands, the result, and the gradient by the result.
Rule = Callable[[tuple[Symbol, ...], Symbol, Symbol], Symbol]


def _select(mask: Symbol, first: Symbol | float, second: Symbol | float) -> Symbol:
    return apply("binary_select", first, second, mask)


def _winner(name: str) -> Callable[[int], Rule]:
    """``max`` or ``min``: everything to the winner, a half each if there is none."""

    def of(operand: int) -> Rule:
        def rule(x: tuple[Symbol, ...], y: Symbol, g: Symbol) -> Symbol:
            wins = apply(name, x[operand], x[1 - operand])
            loses = apply(name, x[1 - operand], x[operand])
            return _select(wins, g, _select(loses, 0.0, g * 0.5))

        return rule

    return of


def _pow_base(x: tuple[Symbol, ...], y: Symbol, g: Symbol) -> Symbol:
    return g * x[1] * x[0] ** (x[1] - 1.0)


def _pow_exponent(x: tuple[Symbol, ...], y: Symbol, g: Symbol) -> Symbol:
    return _select(x[0] == 0.0, 0.0, g * y * apply("log", x[0]))


def _sigmoid(x: tuple[Symbol, ...], y: Symbol, g: Symbol) -> Symbol:
    share = g * y
    return share - share * y


_MAX, _MIN = _winner("cmp_gt"), _winner("cmp_lt")

#: For each operation the rules of its operands. An operation that is not here passes no gradient.
RULES: dict[str, tuple[Rule, ...]] = {
    "add": (lambda x, y, g: g, lambda x, y, g: g),
    "sub": (lambda x, y, g: g, lambda x, y, g: -g),
    "mul": (lambda x, y, g: g * x[1], lambda x, y, g: g * x[0]),
    "div": (lambda x, y, g: g / x[1], lambda x, y, g: -(g * y) / x[1]),
    "pow": (_pow_base, _pow_exponent),
    "max": (_MAX(0), _MAX(1)),
    "min": (_MIN(0), _MIN(1)),
    "neg": (lambda x, y, g: -g,),
    "abs": (lambda x, y, g: _select(x[0] > 0.0, g, _select(x[0] < 0.0, -g, 0.0)),),
    "exp": (lambda x, y, g: g * y,),
    "log": (lambda x, y, g: g / x[0],),
    "sqrt": (lambda x, y, g: g * 0.5 / y,),
    "rsqrt": (lambda x, y, g: g * -0.5 * y * y * y,),
    "reciprocal": (lambda x, y, g: -(g * y * y),),
    "sin": (lambda x, y, g: g * apply("cos", x[0]),),
    "cos": (lambda x, y, g: -(g * apply("sin", x[0])),),
    "tan": (lambda x, y, g: g + g * (y * y),),
    "tanh": (lambda x, y, g: g - g * (y * y),),
    "sigmoid": (_sigmoid,),
    "softplus": (lambda x, y, g: g * apply("sigmoid", x[0]),),
    "relu": (lambda x, y, g: _select(x[0] > 0.0, g, 0.0),),
}

#: A branch: the mask's node, and whether it holds there.
_Branch = tuple[int, bool]


@dataclass(frozen=True)
class _Share:
    """A part of a gradient: ``value`` where all branches are taken, else 0."""

    branches: tuple[_Branch, ...]
    value: Symbol


def gradient(expression: Expression) -> Expression:
    """``d(loss)/d(score)``, from ``Grad``, the score, and the expression's other leaves."""
    return _Reverse(expression).run()


class _Reverse:
    """One pass from the result to the score."""

    def __init__(self, expression: Expression) -> None:
        self._nodes = expression.nodes
        self._trace = Trace()
        indices = self._trace.builder.include(expression, self._leaf)
        self._values = [Symbol(self._trace.builder, index) for index in indices]
        self._active = _depends_on_score(expression)
        self._shares: list[list[_Share]] = [[] for _ in self._nodes]

    def _leaf(self, node: Node) -> int:
        assert not isinstance(node, Apply)
        leaf: Leaf = node
        return self._trace.leaf(leaf).index

    def run(self) -> Expression:
        self._shares[-1].append(_Share((), self._trace.grad))
        total = self._trace.constant(0.0)
        for index in reversed(range(len(self._nodes))):
            node, shares = self._nodes[index], self._shares[index]
            if not shares or not self._active[index]:
                continue
            if isinstance(node, Score):
                share = self._merge(shares, guarded=False)
                total = total + self._taken(share.branches, share.value)
                continue
            share = self._merge(shares)
            if isinstance(node, Apply) and node.op == "binary_select":
                self._split(node, share)
            elif isinstance(node, Apply):
                self._pass_on(node, self._values[index], share)
        return self._trace.expression(total)

    def _pass_on(self, node: Apply, result: Symbol, share: _Share) -> None:
        operands = tuple(self._values[i] for i in node.operands)
        for place, rule in enumerate(RULES.get(node.op, ())):
            if self._active[node.operands[place]]:
                value = rule(operands, result, share.value)
                self._shares[node.operands[place]].append(_Share(share.branches, value))

    def _split(self, node: Apply, share: _Share) -> None:
        first, second, mask = node.operands
        condition = self._values[mask].index
        for operand, holds in ((first, True), (second, False)):
            branches = (*share.branches, (condition, holds))
            self._shares[operand].append(_Share(branches, share.value))

    def _merge(self, shares: list[_Share], guarded: bool = True) -> _Share:
        """The sum. Branches that all have in common stay open, the others are closed here.

        Args:
            guarded: what is closed is followed by one branch that is taken where any of them is,
                since the sum is going to meet derivatives that may be infinite elsewhere.
        """
        count = _common(shares)
        common = shares[0].branches[:count]
        closed = [share.branches[count:] for share in shares]
        values = [
            self._taken(rest, share.value) for rest, share in zip(closed, shares, strict=True)
        ]
        total = values[0]
        for value in values[1:]:
            total = total + value
        if len(shares) > 1 and guarded and not _cover_everything(closed):
            common = (*common, (self._any(closed).index, True))
        return _Share(common, total)

    def _any(self, alternatives: list[tuple[_Branch, ...]]) -> Symbol:
        """Where all branches of one of the alternatives are taken."""
        result = self._all(alternatives[0])
        for branches in alternatives[1:]:
            result = result | self._all(branches)
        return result

    def _all(self, branches: tuple[_Branch, ...]) -> Symbol:
        result = self._holds(branches[0])
        for branch in branches[1:]:
            result = result & self._holds(branch)
        return result

    def _holds(self, branch: _Branch) -> Symbol:
        mask = self._mask(branch)
        return mask if branch[1] else ~mask

    def _mask(self, branch: _Branch) -> Symbol:
        return Symbol(self._trace.builder, branch[0])

    def _taken(self, branches: tuple[_Branch, ...], value: Symbol) -> Symbol:
        for branch in reversed(branches):
            ends = (value, 0.0) if branch[1] else (0.0, value)
            value = _select(self._mask(branch), *ends)
        return value


def _common(shares: list[_Share]) -> int:
    """How many branches, from the outermost, all have in common."""
    count = 0
    for branches in zip(*(share.branches for share in shares), strict=False):
        if len(set(branches)) > 1:
            break
        count += 1
    return count


def _cover_everything(alternatives: list[tuple[_Branch, ...]]) -> bool:
    """Whether one of the alternatives is taken for sure."""
    single = {branches[0] for branches in alternatives if len(branches) == 1}
    return () in alternatives or any((mask, not holds) in single for mask, holds in single)


def _depends_on_score(expression: Expression) -> list[bool]:
    """For each node whether a gradient can reach the score through it."""
    active: list[bool] = []
    for node in expression.nodes:
        if isinstance(node, Apply):
            smooth = node.op in RULES or node.op == "binary_select"
            reached = any(active[i] for i in node.operands)
            active.append(smooth and reached and node.type is Type.FLOAT)
        else:
            active.append(isinstance(node, Score))
    return active
