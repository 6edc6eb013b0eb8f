"""Infinities kept out of differences."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def finite(peak: Array) -> Array:
    """-inf (a row without visible keys) as 0, so that no difference of infinities arises."""
    return jnp.where(peak > -jnp.inf, peak, 0.0)
