"""Lengths of sequences, and where packed ones lie."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from .. import convert


def seq_lens(name: str, given: object, batch: int, *, may_be_scalar: bool = False) -> Array:
    """Lengths in tokens, int32 ``[B]``.

    Args:
        name: the argument.
        may_be_scalar: the operands have no axis of the batch, so that one length has none either,
            and may be a number of Python or NumPy.

    Raises:
        TypeError, ValueError: not int32 or int64, or not one for each sequence.
    """
    axes = f"[{batch}], one of each sequence"
    if may_be_scalar:
        axes = f"{axes}, or []"
        given = _array_of_number(given)
    array = _integers(name, given, axes)
    if may_be_scalar and array.ndim == 0:
        array = array[None]
    if array.shape != (batch,):
        raise ValueError(f"{name} has shape {list(array.shape)}; expected {axes}")
    return array


def cu_seqlens(name: str, given: object, batch: int | None = None) -> Array:
    """Cumulative lengths in tokens, int32 ``[B + 1]``.

    Args:
        name: the argument.
        batch: what ``B`` must be; None: anything.

    Raises:
        TypeError, ValueError: not int32 or int64, or of the wrong shape.
    """
    array = _integers(name, given, "[sequences + 1]")
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(f"{name} has shape {list(array.shape)}; expected [sequences + 1]")
    if batch is not None and array.shape[0] != batch + 1:
        raise ValueError(
            f"{name} has shape {list(array.shape)}; expected [{batch + 1}], sequences + 1"
        )
    return array


def page_table(name: str, given: object, batch: int) -> Array:
    """Numbers of pages, int32 ``[B, pages of a sequence]``.

    Raises:
        TypeError, ValueError: not int32 or int64, or of the wrong shape.
    """
    axes = f"[{batch}, pages of a sequence]"
    array = _integers(name, given, axes)
    if array.ndim != 2 or array.shape[0] != batch:
        raise ValueError(f"{name} has shape {list(array.shape)}; expected {axes}")
    return array


def _array_of_number(given: object) -> object:
    """An integer, or a scalar of NumPy, as an array ``[]``; anything else as it is."""
    if isinstance(given, int) and not isinstance(given, bool):
        return np.asarray(min(max(given, _LEAST), _LARGEST), np.int32)
    return np.asarray(given) if isinstance(given, np.generic) else given


def _integers(name: str, given: object, axes: str) -> Array:
    """int32, of int32 or int64.

    What int32 cannot hold becomes its nearest number: a length of 2**32 + 1 is long, not 1.
    """
    if isinstance(given, np.ndarray) and given.dtype == np.int64:
        # Before JAX, which without x64 makes it int32. Of an array [] NumPy makes a scalar.
        given = np.asarray(np.clip(given, _LEAST, _LARGEST))
    array = convert.array(name, given, f"int32 or int64 {axes}")
    if array.dtype not in (jnp.int32, jnp.int64):
        raise TypeError(f"{name} has dtype {array.dtype}; expected int32 or int64")
    if array.dtype == jnp.int64:
        array = jnp.clip(array, _LEAST, _LARGEST)
    return array.astype(jnp.int32)


_LEAST, _LARGEST = -(2**31), 2**31 - 1
