"""Inside ``jax.shard_map``: over which mesh axes values vary, which JAX keeps in their types.

A primitive that forgot it would pass for replicated: ``shard_map`` would then return one device's
part for all, and leave out the sums over devices that gradients need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array
from jax.core import ShapedArray
from jax.sharding import PartitionSpec


def varying_axes(array: Array) -> frozenset[str]:
    """The manual mesh axes over which an array may differ from device to device."""
    aval: Any = jax.typeof(array)
    manual = getattr(aval, "manual_axis_type", None)  # jax < 0.10 has only ``vma``
    found: frozenset[str] = aval.vma if manual is None else manual.varying
    return found


def vary_alike(arrays: Sequence[Array]) -> list[Array]:
    """The same arrays, each varying over every axis that one of them varies over.

    JAX transposes this to the sum over devices that an operand's gradient needs.
    """
    axes = frozenset().union(*map(varying_axes, arrays))
    return [_varying(array, axes - varying_axes(array)) for array in arrays]


def _varying(array: Array, missing: frozenset[str]) -> Array:
    if not missing:
        return array
    widened: Array = jax.lax.pcast(array, tuple(sorted(missing)), to="varying")
    return widened


def like(source: ShapedArray, shape: tuple[int, ...], dtype: Any) -> ShapedArray:
    """The type of a result that varies as ``source`` does."""
    sharding = source.sharding
    if len(shape) != len(source.shape):
        sharding = sharding.update(spec=PartitionSpec(*(None,) * len(shape)))
    made: ShapedArray = source.update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding)
    return made
