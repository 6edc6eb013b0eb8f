"""Integers of 64 bits as words of uint32, low word first: JAX has no others without x64.

The executor looks at bytes, and so do the kernels: a pair is what an int64 is in memory.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def of_int(value: int) -> Array:
    """An int in two's complement, uint32 ``[2]``."""
    return jnp.asarray([value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF], jnp.uint32)


def product(factor: int, values: Array) -> tuple[Array, Array]:
    """Low and high word of ``factor * values``, exactly: uint32 of the shape of ``values``.

    Args:
        factor: in ``[0, 2**32)``.
        values: uint32, or int32 of which none is negative.
    """
    words = values.astype(jnp.uint32)
    f_high, f_low = jnp.uint32(factor >> 16), jnp.uint32(factor & 0xFFFF)
    w_high, w_low = words >> 16, words & 0xFFFF
    one, other = f_high * w_low, f_low * w_high
    carry = (f_low * w_low >> 16) + (one & 0xFFFF) + (other & 0xFFFF)
    high = f_high * w_high + (one >> 16) + (other >> 16) + (carry >> 16)
    return jnp.uint32(factor) * words, high
