"""Functions of the logits: callbacks become expressions, their arguments operands and numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sdpa_core.layout import Shape
from sdpa_core.logits import ScoreMod
from sdpa_core.score_mod import TENSOR_TYPES, ScalarArg, TensorArg, trace, trace_bprop

from .. import convert
from .scalars import float32


class Function(NamedTuple):
    """A function of the logits and what it reads.

    Attributes:
        score_mod: None for no function.
        tensors: auxiliary operands by role.
        scalars: numbers that are given at launch.
    """

    score_mod: ScoreMod | None = None
    tensors: Mapping[str, Array] = MappingProxyType({})
    scalars: tuple[float, ...] = ()


def function(
    score_mod: Callable[..., Any] | None,
    bprop: Callable[..., Any] | None,
    args: object,
    pairs: Shape,
) -> Function:
    """The arguments ``score_mod``, ``score_mod_bprop`` and ``score_mod_args``.

    Args:
        pairs: ``[B, N, T, S]``, to which arrays must be broadcastable.

    Raises:
        TypeError, ValueError: an argument is wrong, or there is no function that it belongs to.
            What a callback raises reaches the caller as it is.
    """
    if not isinstance(args, tuple | list):
        raise TypeError(f"score_mod_args is a {type(args).__name__}; expected a tuple")
    if score_mod is None:
        for name, given in (("score_mod_bprop", bprop is not None), ("score_mod_args", len(args))):
            if given:
                raise ValueError(f"{name} is given without a score_mod")
        return Function()
    for name, callback in (("score_mod", score_mod), ("score_mod_bprop", bprop)):
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} is a {type(callback).__name__}; expected a function")
    operands = [_operand(f"score_mod_args[{i}]", x, pairs) for i, x in enumerate(args)]
    described = [
        ScalarArg() if isinstance(x, float) else TensorArg(convert.dtype_of(x), x.shape)
        for x in operands
    ]
    tensors = [x for x in operands if not isinstance(x, float)]
    made = ScoreMod(
        trace(score_mod, described).expression,
        None if bprop is None else trace_bprop(bprop, described).expression,
        tuple(map(convert.dense, tensors)),
        len(operands) - len(tensors),
    )
    return Function(
        made,
        {f"score_mod_{i}": x for i, x in enumerate(tensors)},
        tuple(x for x in operands if isinstance(x, float)),
    )


def _operand(name: str, given: Any, pairs: Shape) -> Array | float:
    is_array = isinstance(given, jax.Array | np.ndarray) or hasattr(given, "__jax_array__")
    if not is_array:
        return float32(name, given, "a concrete number or an array")
    array = convert.array(name, given)
    if array.dtype not in _TYPES:
        raise TypeError(f"{name} has dtype {array.dtype}; expected {TENSOR_TYPES}")
    shape = (1,) * (4 - array.ndim) + array.shape
    if len(shape) != 4 or any(n not in (1, m) for n, m in zip(shape, pairs, strict=True)):
        raise ValueError(
            f"{name} has shape {list(array.shape)}; expected one that is broadcastable to "
            f"[batch, heads, query tokens, key tokens] = {list(pairs)}"
        )
    return array.reshape(shape)


_TYPES = (jnp.float32, jnp.float16, jnp.bfloat16, jnp.int32)
