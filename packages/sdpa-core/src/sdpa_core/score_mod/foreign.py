"""What a callback is told that calls a function of NumPy, PyTorch, JAX or ``math`` on a symbol.

The libraries ask their operands by name (``__array_ufunc__``, ``__torch_function__``, ...), so none
of them is imported.
"""

from __future__ import annotations

from collections.abc import Mapping

from .ops import OPS

#: NumPy's functions behind Python's operators, by the operation that they are. Its scalars call
#: them where they stand on the left: ``numpy.float32(2) * score``.
OPERATORS: Mapping[str, str] = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "power": "pow",
    "less": "cmp_lt",
    "less_equal": "cmp_le",
    "greater": "cmp_gt",
    "greater_equal": "cmp_ge",
    "equal": "cmp_eq",
    "not_equal": "cmp_neq",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
}

#: What the libraries call operations that have another name here.
_SYNONYMS: Mapping[str, str] = {
    **OPERATORS,
    "absolute": "abs",
    "fabs": "abs",
    "negative": "neg",
    "maximum": "max",
    "minimum": "min",
    "fmax": "max",
    "fmin": "min",
    "invert": "logical_not",
    "expit": "sigmoid",
    "special_expit": "sigmoid",
    "logaddexp": "softplus",
    "where": "binary_select",
}

_ARGUMENTS = (
    "pass arrays and numbers that change from call to call in score_mod_args, "
    "which reach the callback as symbols"
)


def refusal(function: str) -> str:
    """That ``library.function`` does not take symbols, and which operation does."""
    name = function.rpartition(".")[2]
    operation = _SYNONYMS.get(name, name)
    instead = (
        f"use graph.{operation}"
        if operation in OPS
        else f"graph has no {name}: compute it of the operations that graph has, such as graph.tanh"
    )
    return f"score_mod: {function} takes no traced score; {instead}"


#: JAX does not tell which of its functions was called, nor whether an operator was.
JAX_REFUSAL = (
    "score_mod: functions and arrays of JAX take no traced score; use the methods of graph, "
    f"graph.tanh for jax.numpy.tanh; {_ARGUMENTS}"
)

#: ``math`` does not tell either.
NUMBER_REFUSAL = (
    "score_mod: a traced score has no value: the callback is called once, not for each logit; "
    "instead of functions of Python numbers use the methods of graph, graph.tanh for math.tanh"
)
