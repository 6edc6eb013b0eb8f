"""The operations of ``score_mod`` expressions in ``jax.numpy``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp

from sdpa_core.score_mod import array_ops


@cache
def operations(wide: jnp.dtype) -> dict[str, Callable[..., Any]]:
    """By name, for ``sdpa_core.score_mod.evaluate``; floats are computed in the type ``wide``."""
    return array_ops(jnp, lambda x: x.astype(wide), lambda x: x.astype(jnp.int32))
