"""Between JAX arrays and what the core understands: specs, and rank-4 arrays.

Arrays are ``[batch, tokens, heads, head_dim]`` (``BTNH``), the core's specs
``[batch, heads, tokens, head_dim]``; the difference is a matter of strides.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sdpa_core import DType, NoBackendError, TensorSpec
from sdpa_core.dtypes import FLOATING
from sdpa_core.layout import Shape, dense_in_order, row_major
from sdpa_core.ragged import packed_spec

#: The axes of a spec, outermost first in memory.
_BTNH = (0, 2, 1, 3)


_AXES = ("batch", "tokens", "heads", "head_dim")


class Shaped(Protocol):
    """What has a shape and an element type: arrays, abstract values, ``jax.ShapeDtypeStruct``."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> Any: ...


class Operands(NamedTuple):
    """Query, key and value: arrays ``BTNH``, or the specs of such arrays."""

    query: Any
    key: Any
    value: Any


def arrays(query: object, key: object, value: object) -> Operands:
    """The operands as JAX arrays.

    Raises:
        TypeError: an operand is no array, or its element type is of no use to attention.
        ValueError: its rank is 0 or more than 4.
    """
    given = Operands(query, key, value)
    return Operands(*(_array(name, x) for name, x in given._asdict().items()))


def of_rank_4(operands: Operands) -> Operands:
    """The same arrays ``BTNH``; missing leading axes have length 1, as in jax.nn."""
    return Operands(*(x.reshape((1,) * (4 - x.ndim) + x.shape) for x in operands))


def specs(query: Shaped, key: Shaped, value: Shaped) -> Operands:
    """The specs ``[B, H, S, D]`` of such arrays of rank 4."""
    return Operands(*(spec(operand) for operand in (query, key, value)))


def spec(operand: Shaped) -> TensorSpec:
    """The spec ``[B, H, S, D]`` of an array ``BTNH``."""
    batch, tokens, heads, head_dim = operand.shape
    shape = (batch, heads, tokens, head_dim)
    return TensorSpec(shape, dense_in_order(shape, _BTNH), dtype_of(operand))


def packed(operand: Shaped, batch: int, longest: int) -> TensorSpec:
    """The spec ``[batch, H, longest, D]`` of packed sequences ``[T, N, H]``."""
    strides = row_major(operand.shape)
    return packed_spec(operand.shape, strides, dtype_of(operand), batch=batch, max_tokens=longest)


def dense(operand: Shaped) -> TensorSpec:
    """The spec of an array as it is."""
    return TensorSpec.dense(operand.shape, dtype_of(operand))


def dtype_of(operand: Shaped) -> DType:
    return DType(operand.dtype.name)


def accumulation_type(dtype: jnp.dtype) -> jnp.dtype:
    """The type in which sums are made, and of the log-sum-exp, sinks and the largest logits."""
    return jnp.dtype(jnp.float64 if dtype == jnp.float64 else jnp.float32)


def array(name: str, operand: Any, form: str = "") -> Array:
    """An argument as a JAX array, of any type and shape.

    Args:
        form: the type and shape that are expected in words, for who passes no array.

    Raises:
        TypeError: it is no array.
        NoBackendError: its shape is symbolic.
    """
    # Objects of flax and equinox that stand for an array have __jax_array__.
    if not isinstance(operand, jax.Array | np.ndarray) and not hasattr(operand, "__jax_array__"):
        raise TypeError(
            f"{name} is of type {type(operand).__name__}; expected a jax.Array or a numpy.ndarray"
            f"{form and f', {form}'}"
        )
    if isinstance(operand, np.ndarray) and operand.dtype.kind in "OUSMm":
        raise TypeError(f"{name} has dtype {operand.dtype}; expected numbers")
    made = jnp.asarray(operand)
    if not all(isinstance(length, int) for length in made.shape):
        raise NoBackendError(
            f"{name} has the symbolic shape {made.shape}, needs constant lengths, "
            f"for which plans are made"
        )
    return made


def _array(name: str, operand: Any) -> Array:
    if isinstance(operand, np.ndarray):
        _check(name, operand)  # before the conversion, whose errors do not name the argument
    made = array(name, operand)
    _check(name, made)
    return made


def _check(name: str, operand: Shaped) -> None:
    if not 1 <= len(operand.shape) <= 4:
        raise ValueError(
            f"{name} has shape {list(operand.shape)}; expected [batch, tokens, heads, head_dim], "
            f"where leading axes may be left out"
        )
    check_floating(name, operand)


def operand(name: str, given: Any, is_packed: bool) -> Array:
    """``[tokens, heads, head_dim]`` or ``[batch, tokens, heads, head_dim]`` as a JAX array.

    Raises:
        TypeError: it is no array, or its element type is of no use to attention.
        ValueError: its rank is another.
    """
    made = array(name, given)
    check_floating(name, made)
    axes = ("tokens", "heads", "head_dim") if is_packed else _AXES
    if made.ndim != len(axes):
        raise ValueError(f"{name} has shape {list(made.shape)}; expected [{', '.join(axes)}]")
    return made


def check_floating(name: str, operand: Shaped) -> None:
    """Raise a TypeError unless attention takes the element type."""
    narrow = not jax.config.jax_enable_x64 and isinstance(operand, jax.Array)
    if operand.dtype.name == "float64" and narrow:
        raise TypeError(f"{name} has dtype float64, but 64-bit types are off (jax_enable_x64)")
    if operand.dtype.name not in FLOATING:
        allowed = "float16, bfloat16, float32 or float64"
        raise TypeError(f"{name} has dtype {operand.dtype.name}; attention takes {allowed}")
