"""Symbolic values: what a ``score_mod`` callback computes with."""

from __future__ import annotations

import numbers
from typing import Any, NoReturn

from . import foreign
from .builder import Builder
from .expression import Type

#: cuDNN's names of the types.
_CUDNN_NAMES = {Type.FLOAT: "FLOAT", Type.INT: "INT32", Type.BOOL: "BOOLEAN"}


class Symbol:
    """A value of every logit, of which only the way it is computed is known.

    Operators: ``+ - * / **``, unary ``-``, ``abs``, comparisons (also ``==``, which compares
    values), and on bools ``& | ~``; with other symbols and with Python numbers.
    """

    __slots__ = ("_builder", "_index")

    def __init__(self, builder: Builder, index: int) -> None:
        self._builder = builder
        self._index = index

    @property
    def builder(self) -> Builder:
        """Where the value's nodes are kept."""
        return self._builder

    @property
    def index(self) -> int:
        """Which of them it is."""
        return self._index

    @property
    def type(self) -> Type:
        return self._builder.type(self._index)

    def set_data_type(self, data_type: object) -> Symbol:
        """For callbacks written for cuDNN: confirms the type, which follows from the operation.

        Raises:
            TypeError: it is another one.
        """
        check_data_type(data_type, (self.type,))
        return self

    def __add__(self, other: object) -> Symbol:
        return apply("add", self, other)

    def __radd__(self, other: object) -> Symbol:
        return apply("add", other, self)

    def __sub__(self, other: object) -> Symbol:
        return apply("sub", self, other)

    def __rsub__(self, other: object) -> Symbol:
        return apply("sub", other, self)

    def __mul__(self, other: object) -> Symbol:
        return apply("mul", self, other)

    def __rmul__(self, other: object) -> Symbol:
        return apply("mul", other, self)

    def __truediv__(self, other: object) -> Symbol:
        return apply("div", self, other)

    def __rtruediv__(self, other: object) -> Symbol:
        return apply("div", other, self)

    def __pow__(self, other: object) -> Symbol:
        return apply("pow", self, other)

    def __rpow__(self, other: object) -> Symbol:
        return apply("pow", other, self)

    def __neg__(self) -> Symbol:
        return apply("neg", self)

    def __abs__(self) -> Symbol:
        return apply("abs", self)

    def __lt__(self, other: object) -> Symbol:
        return apply("cmp_lt", self, other)

    def __le__(self, other: object) -> Symbol:
        return apply("cmp_le", self, other)

    def __gt__(self, other: object) -> Symbol:
        return apply("cmp_gt", self, other)

    def __ge__(self, other: object) -> Symbol:
        return apply("cmp_ge", self, other)

    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return apply("cmp_eq", self, other)

    def __ne__(self, other: object) -> Symbol:  # type: ignore[override]
        return apply("cmp_neq", self, other)

    def __and__(self, other: object) -> Symbol:
        return apply("logical_and", self, other)

    def __rand__(self, other: object) -> Symbol:
        return apply("logical_and", other, self)

    def __or__(self, other: object) -> Symbol:
        return apply("logical_or", self, other)

    def __ror__(self, other: object) -> Symbol:
        return apply("logical_or", other, self)

    def __invert__(self) -> Symbol:
        return apply("logical_not", self)

    __hash__ = None  # type: ignore[assignment]

    def _has_no_value(self, *_: object) -> NoReturn:
        raise TypeError(
            "a traced score has no value: score_mod is called once, not for each logit; "
            "instead of a Python condition use graph.binary_select(a, b, mask)"
        )

    __bool__ = __iter__ = __len__ = __getitem__ = _has_no_value

    def _is_no_number(self, *_: object) -> NoReturn:
        raise TypeError(foreign.NUMBER_REFUSAL)

    __float__ = __int__ = __index__ = __complex__ = __round__ = _is_no_number

    def __array_ufunc__(
        self, ufunc: object, method: str, *operands: object, **keywords: object
    ) -> Symbol:
        """NumPy's functions: operators of its scalars are this class's, all others are refused."""
        name = str(getattr(ufunc, "__name__", ufunc))
        operation = foreign.OPERATORS.get(name)
        if operation is not None and method == "__call__" and not keywords:
            if operation.startswith("cmp_"):
                operands = tuple(map(_number_of_array, operands))
            return apply(operation, *operands)
        raise TypeError(foreign.refusal(f"numpy.{name}"))

    def __array_function__(self, function: object, *_: object) -> NoReturn:
        raise TypeError(foreign.refusal(f"numpy.{getattr(function, '__name__', function)}"))

    @classmethod
    def __torch_function__(cls, function: object, *_: object) -> NoReturn:
        # Of an operator between a tensor and a symbol PyTorch then asks the symbol's.
        raise TypeError(foreign.refusal(f"torch.{getattr(function, '__name__', function)}"))

    @property
    def __jax_array__(self) -> NoReturn:
        """Refuses JAX's functions and arrays; JAX 0.10 asks for it, and would not call it.

        A ValueError: JAX replaces TypeErrors with its own, which do not name score_mod.
        """
        raise ValueError(foreign.JAX_REFUSAL)

    def __repr__(self) -> str:
        return f"<traced {self.type} of score_mod>"


def apply(name: str, *operands: object) -> Symbol:
    """An operation on symbols, of which at least one is given, and Python numbers."""
    builder = next(operand.builder for operand in operands if isinstance(operand, Symbol))
    indices = (lift(builder, operand, name).index for operand in operands)
    return Symbol(builder, builder.apply(name, *indices))


def lift(builder: Builder, value: Any, place: str) -> Symbol:
    """``value`` as a symbol of ``builder``.

    Raises:
        TypeError: it is neither a number nor a symbol of this trace.
    """
    if isinstance(value, Symbol):
        if value.builder is not builder:
            raise TypeError(f"{place}: a value of another call of score_mod is used in this one")
        return value
    if isinstance(value, bool) or _is_numpy_bool(value):
        return Symbol(builder, builder.constant(bool(value)))
    if isinstance(value, numbers.Integral):
        return Symbol(builder, builder.constant(int(value)))
    if isinstance(value, numbers.Real):
        return Symbol(builder, builder.constant(float(value)))
    # Last: torch.compile traces this function, and knows no ``__mro__``.
    if _is_numpy_scalar(value) and isinstance(value.item(), numbers.Real):
        return Symbol(builder, builder.constant(float(value.item())))
    raise TypeError(
        f"{place}: {type(value).__name__} is no operand of score_mod; pass arrays and numbers "
        f"that change from call to call in score_mod_args"
    )


def _is_numpy_scalar(value: Any) -> bool:
    """Told by its class's ancestors: ``numbers`` does not know bfloat16, which ml_dtypes adds."""
    return any((t.__module__, t.__name__) == ("numpy", "generic") for t in type(value).__mro__)


def _number_of_array(value: Any) -> Any:
    """The number in an array without axes, which NumPy makes of its scalars to compare them."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _is_numpy_bool(value: object) -> bool:
    """Told by its dtype: NumPy registers the type with none of ``numbers``."""
    dtype = getattr(value, "dtype", None)
    return getattr(value, "ndim", None) == 0 and str(dtype) == "bool"


def check_data_type(data_type: object, allowed: tuple[Type, ...]) -> None:
    """Raise unless cuDNN's ``data_type`` is what the values are anyway."""
    name = getattr(data_type, "name", None)
    if name not in {"NOT_SET", *(_CUDNN_NAMES[item] for item in allowed)}:
        expected = " or ".join(_CUDNN_NAMES[item] for item in dict.fromkeys(allowed))
        raise TypeError(
            f"score_mod: data type {name or repr(data_type)}, expected {expected}; "
            f"graph.to_float and graph.to_int convert"
        )
