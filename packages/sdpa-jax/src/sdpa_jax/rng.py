"""From JAX's keys to the seeds of dropout."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


def seed(key: Array) -> Array:
    """Low and high word of a seed of 64 bits, uint32 ``[2]``: a function of the key alone."""
    return jax.random.bits(key, (2,), jnp.uint32)


def check(key: Any) -> None:
    """Raise unless ``key`` is one key of ``jax.random``, typed or raw.

    Raises:
        TypeError: it is none.
        ValueError: it is an array of keys; one for each example is for ``jax.vmap``.
    """
    if isinstance(key, jax.Array) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != ():
            raise ValueError(
                f"dropout_key has shape {list(key.shape)}; expected one key, see jax.random.split"
            )
        return
    if getattr(key, "dtype", None) != jnp.uint32:
        given = getattr(key, "dtype", type(key).__name__)
        raise TypeError(f"dropout_key is {given}; expected a key of jax.random")
    if key.ndim != 1:
        raise ValueError(f"dropout_key has shape {list(key.shape)}; expected one key")
