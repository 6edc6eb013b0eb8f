"""Optional features as arrays of the call's shapes, checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...problem import Softmax
from .features import Array, Features, Mask


def spread(name: str, array: ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    """The array in float64, repeated to the shape."""
    if array is None:
        return None
    given = np.asarray(array, dtype=np.float64)
    try:
        return np.broadcast_to(given, shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {list(given.shape)}; expected one that broadcasts to {list(shape)}"
        ) from None


def visible_by_mask(mask: ArrayLike | None, shape: tuple[int, ...]) -> Mask | None:
    """The mask as boolean: any number but 0 is visible."""
    given = spread("mask", mask, shape)
    return None if given is None else given != 0


def slopes_of(slopes: ArrayLike | None, batch: int, heads: int) -> Array | None:
    """``[B, Hq]``."""
    if slopes is None:
        return None
    given = np.asarray(slopes, dtype=np.float64)
    flat = given[..., 0, 0] if given.ndim == 4 else given
    return spread("alibi_slopes", flat, (batch, heads))


def sinks_of(given: Features, heads: int) -> Array | None:
    """``[Hq]``, the sink's logits; the one of off-by-one softmax is 0."""
    softmax, sink = given.get("softmax", Softmax.VANILLA), given.get("sink")
    if (sink is not None) != (softmax is Softmax.LEARNABLE):
        raise ValueError(f"sink goes with softmax={Softmax.LEARNABLE!s} alone, got {softmax!s}")
    if softmax is Softmax.OFF_BY_ONE:
        return np.zeros(heads)
    return spread("sink", sink, (heads,))


def lengths_of(name: str, given: ArrayLike | None, batch: int, tokens: int) -> tuple[int, ...]:
    """Of every sequence."""
    if given is None:
        return (tokens,) * batch
    lengths = tuple(int(n) for n in np.asarray(given).reshape(-1))
    if len(lengths) != batch or not all(0 <= n <= tokens for n in lengths):
        raise ValueError(f"{name} is {lengths}; expected {batch} lengths from 0 to {tokens}")
    return lengths
