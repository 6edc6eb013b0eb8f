"""What the denominator of the softmax holds, and dropout."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from sdpa_core.problem import Softmax

from .. import convert, rng
from .scalars import number


def softmax(given: object, sink: object, query: Array) -> tuple[Softmax, Array | None]:
    """The kind of softmax, and the sink ``[N]`` in the type of the log-sum-exp.

    Raises:
        TypeError, ValueError: an argument is wrong, or they contradict each other.
    """
    if not isinstance(given, str) or given not in list(Softmax):
        raise ValueError(f"softmax = {given!r}; expected one of {', '.join(Softmax)}")
    kind = Softmax(given)
    if sink is None:
        if kind is Softmax.LEARNABLE:
            raise ValueError("softmax = 'learnable' needs a sink")
        return kind, None
    if kind is Softmax.OFF_BY_ONE:
        raise ValueError("softmax = 'off_by_one' is a sink of 0; expected no sink beside it")
    heads = query.shape[-2]
    axes = f"[{heads}], of each head"
    array = convert.array("sink", sink, f"floating point {axes}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"sink has dtype {array.dtype}; expected floating-point numbers")
    if array.shape != (heads,):
        raise ValueError(f"sink has shape {list(array.shape)}; expected {axes}")
    return Softmax.LEARNABLE, array.astype(convert.accumulation_type(query.dtype))


def dropout(rate: object, key: Any) -> tuple[float, dict[str, Array]]:
    """The probability, and seed and offset by role if there is any.

    Raises:
        TypeError, ValueError: the rate is not in ``[0, 1)``, or there is no key for it.
    """
    p = number("dropout_rate", rate)
    if not 0 <= p < 1:
        raise ValueError(f"dropout_rate = {p}; expected a probability in [0, 1)")
    if key is not None:
        rng.check(key)
    if p == 0:
        return 0.0, {}
    if key is None:
        raise ValueError("dropout_rate > 0 needs a dropout_key")
    return p, {"dropout_seed": rng.seed(key), "dropout_offset": jnp.zeros(2, jnp.uint32)}
