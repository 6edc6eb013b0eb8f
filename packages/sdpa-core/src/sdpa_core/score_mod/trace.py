"""From a ``score_mod`` callback to an expression: it is called once, with symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..dtypes import DType
from ..layout import Shape
from .builder import Builder
from .expression import (
    Axis,
    Expression,
    Grad,
    Index,
    Leaf,
    Scalar,
    Score,
    Tensor,
    Type,
    tensor_type,
)
from .ops import OPS, Op
from .symbol import Symbol, apply, check_data_type, lift

_AXES = tuple(Axis)


@dataclass(frozen=True, slots=True)
class TensorArg:
    """An array among ``score_mod_args``.

    Attributes:
        dtype: float32, float16, bfloat16 or int32.
        shape: broadcastable to ``[B, Hq, Sq, Skv]``.
    """

    dtype: DType
    shape: Shape


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A Python number among ``score_mod_args``: a float32 given at launch, not part of the key."""


Arg = TensorArg | ScalarArg


@dataclass(frozen=True, slots=True)
class Traced:
    """What a callback computes.

    Attributes:
        expression: see there.
        tensors: which arguments the auxiliary tensors are, by their position in the expression.
        scalars: the same for scalars.
    """

    expression: Expression
    tensors: tuple[int, ...] = ()
    scalars: tuple[int, ...] = ()


class Trace:
    """Symbols of one trace, and the expressions of them.

    ``score_mod`` gets them from ``trace``; the library writes its own functions of the logits with
    this class::

        trace = Trace()
        visible = trace.query >= trace.key
        expression = trace.expression(select(visible, trace.score, -math.inf))
    """

    def __init__(self) -> None:
        self._builder = Builder()

    def leaf(self, node: Leaf) -> Symbol:
        return Symbol(self._builder, self._builder.add(node))

    @property
    def score(self) -> Symbol:
        return self.leaf(Score())

    @property
    def grad(self) -> Symbol:
        return self.leaf(Grad())

    @property
    def batch(self) -> Symbol:
        return self.leaf(Index(Axis.BATCH))

    @property
    def head(self) -> Symbol:
        return self.leaf(Index(Axis.HEAD))

    @property
    def query(self) -> Symbol:
        return self.leaf(Index(Axis.QUERY))

    @property
    def key(self) -> Symbol:
        return self.leaf(Index(Axis.KEY))

    def tensor(self, position: int, dtype: DType) -> Symbol:
        """Auxiliary tensor ``position``; a TypeError if no expression reads its element type."""
        tensor_type(dtype)
        return self.leaf(Tensor(position, dtype))

    def scalar(self, position: int) -> Symbol:
        return self.leaf(Scalar(position))

    def constant(self, value: float | bool) -> Symbol:
        return lift(self._builder, value, "constant")

    def expression(self, result: Symbol) -> Expression:
        lift(self._builder, result, "the result")
        return self._builder.expression(result.index)

    @property
    def builder(self) -> Builder:
        return self._builder


class Graph:
    """The ``graph`` of a callback: cuDNN's pointwise operations, by its names and keywords.

    Each method takes symbols and Python numbers, in order or by keyword. ``name`` is a label that
    cuDNN's callbacks like to give; it means nothing here. ``compute_data_type`` must be what the
    operation computes in anyway.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def gen_index(
        self,
        input: Symbol,  # noqa: A002 - cuDNN's keyword
        axis: int,
        name: str = "",
        compute_data_type: object = None,
    ) -> Symbol:
        """Position along an axis of ``[batch, head, query, key]``, int32, from 0."""
        lift(self._trace.builder, input, "gen_index")
        if isinstance(axis, bool) or axis not in range(len(_AXES)):
            raise ValueError(f"gen_index: axis = {axis!r}; expected 0, 1, 2 or 3")
        if compute_data_type is not None:
            check_data_type(compute_data_type, (Type.INT,))
        return self._trace.leaf(Index(_AXES[axis]))

    def identity(
        self,
        input: Symbol,  # noqa: A002 - cuDNN's keyword
        name: str = "",
    ) -> Symbol:
        """``input``."""
        return lift(self._trace.builder, input, "identity")

    def constant(self, value: float | bool) -> Symbol:
        """A number that belongs to the plan: another value is another plan."""
        return self._trace.constant(value)

    def tensor_scalar(self, value: float, scalar_type: object = None) -> Symbol:
        """As ``constant``; whatever ``scalar_type``, the value is stored in the plan."""
        return self._trace.constant(value)


def _method(op: Op) -> Callable[..., Symbol]:
    """The facade's method for an operation."""

    def method(
        self: Graph,
        *args: object,
        name: str = "",
        compute_data_type: object = None,
        **kwargs: object,
    ) -> Symbol:
        operands = _bind(op, args, kwargs)
        symbols = [lift(self._trace.builder, operand, op.name) for operand in operands]
        result = apply(op.name, *symbols)
        if compute_data_type is not None:
            check_data_type(compute_data_type, (result.type, *(s.type for s in symbols)))
        return result

    method.__name__ = op.name
    method.__qualname__ = f"Graph.{op.name}"
    method.__doc__ = f"{op.name}({', '.join(op.operands)})."
    return method


def _bind(op: Op, args: tuple[object, ...], kwargs: dict[str, object]) -> list[object]:
    """The operands in order, as Python binds arguments."""
    given = dict(zip(op.operands, args, strict=False))
    repeated = given.keys() & kwargs.keys()
    unknown = kwargs.keys() - set(op.operands)
    missing = [name for name in op.operands if name not in given and name not in kwargs]
    if repeated or unknown or missing or len(args) > len(op.operands):
        raise TypeError(f"{op.name} takes ({', '.join(op.operands)})")
    given |= kwargs
    return [given[name] for name in op.operands]


for _op in OPS.values():
    setattr(Graph, _op.name, _method(_op))


def trace(score_mod: Callable[..., object], args: Sequence[Arg] = ()) -> Traced:
    """Call ``score_mod(graph, score, *args)`` with symbols.

    What the callback raises reaches the caller as it is.

    Raises:
        TypeError: it does not return a float32 symbol of this call, or an array's element type
            has no place in an expression.
    """
    return _trace("score_mod", score_mod, args, ("score",))


def trace_bprop(score_mod_bprop: Callable[..., object], args: Sequence[Arg] = ()) -> Traced:
    """Call ``score_mod_bprop(graph, grad, score, *args)`` with symbols.

    ``grad`` is the gradient of the loss by the result of ``score_mod``; the callback returns that
    by ``score``. Raises as ``trace``.
    """
    return _trace("score_mod_bprop", score_mod_bprop, args, ("grad", "score"))


def _trace(
    name: str, function: Callable[..., object], args: Sequence[Arg], leading: tuple[str, ...]
) -> Traced:
    symbols = Trace()
    tensors: list[int] = []
    scalars: list[int] = []
    operands: list[Symbol] = []
    for number, arg in enumerate(args):
        if isinstance(arg, TensorArg):
            operands.append(symbols.tensor(len(tensors), arg.dtype))
            tensors.append(number)
        else:
            operands.append(symbols.scalar(len(scalars)))
            scalars.append(number)
    first = (getattr(symbols, leaf) for leaf in leading)
    result = function(Graph(symbols), *first, *operands)
    if not isinstance(result, Symbol) or result.builder is not symbols.builder:
        given = "a value of another call" if isinstance(result, Symbol) else type(result).__name__
        raise TypeError(f"{name} returned {given}; expected a value computed from its arguments")
    if result.type is not Type.FLOAT:
        raise TypeError(f"{name} returned {result.type} values; expected float32")
    return Traced(symbols.expression(result), tuple(tensors), tuple(scalars))
