"""What is added to the logits: bias, masks, segments, ALiBi."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sdpa_core.layout import Shape

from .. import convert


def bias(given: object, mask: object, segment_ids: object, pairs: Shape, query: Array) -> Any:
    """The arguments ``bias``, ``mask`` and ``segment_ids`` as one bias, or None.

    What a mask or segments hide gets -inf; without a bias in the query's type.

    Args:
        given, mask, segment_ids: the arguments.
        pairs: ``[B, N, T, S]``.
        query: for its type.

    Raises:
        TypeError, ValueError: a type or shape does not fit.
    """
    added = None if given is None else _bias(given, pairs, query.dtype)
    visible = None if mask is None else _mask(mask, pairs)
    if segment_ids is not None:
        same = _same_segment(segment_ids, pairs)
        visible = same if visible is None else visible & same
    if visible is None:
        return added
    if added is None:
        added = jnp.zeros((1, 1, 1, 1), query.dtype)
    return jnp.where(visible, added, jnp.asarray(-jnp.inf, added.dtype))


def _bias(given: object, pairs: Shape, dtype: Any) -> Array:
    array = convert.array("bias", given)
    if array.dtype not in (dtype, jnp.float32):
        expected = dict.fromkeys((jnp.dtype(dtype).name, "float32"))
        raise TypeError(f"bias has dtype {array.dtype}; expected {' or '.join(expected)}")
    return _by_pairs("bias", array, pairs)


def _mask(given: object, pairs: Shape) -> Array:
    array = convert.array("mask", given)
    if array.dtype != jnp.bool_:
        raise TypeError(f"mask has dtype {array.dtype}; expected bool. What is added is a bias")
    return _by_pairs("mask", array, pairs)


def _by_pairs(name: str, array: Array, pairs: Shape) -> Array:
    """Of rank 4 and with all the keys."""
    rank_4 = (1,) * (4 - array.ndim) + array.shape
    fits = len(rank_4) == 4 and all(n in (1, m) for n, m in zip(rank_4, pairs, strict=True))
    if not fits:
        raise ValueError(
            f"{name} has shape {list(array.shape)}; expected one that is broadcastable to "
            f"[batch, heads, query tokens, key tokens] = {list(pairs)}"
        )
    return jnp.broadcast_to(array.reshape(rank_4), (*rank_4[:3], pairs[3]))


def _same_segment(given: object, pairs: Shape) -> Array:
    batch, _, tokens_q, tokens_kv = pairs
    both = given if isinstance(given, tuple | list) else (given, given)
    if len(both) != 2:
        raise ValueError(f"segment_ids has {len(both)} parts; expected one array or a pair")
    ids = [
        _ids(one, (batch, tokens)) for one, tokens in zip(both, (tokens_q, tokens_kv), strict=True)
    ]
    return (ids[0][:, :, None] == ids[1][:, None, :])[:, None]


def _ids(given: object, shape: Shape) -> Array:
    array = convert.array("segment_ids", given)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"segment_ids has dtype {array.dtype}; expected integers")
    if array.ndim == 1 and shape[0] == 1:
        array = array[None]
    if array.shape != shape:
        raise ValueError(
            f"segment_ids has shape {list(array.shape)}; expected [batch, tokens] = {list(shape)}"
        )
    return array


def alibi(given: object, batch: int, heads: int) -> tuple[bool, Any]:
    """Whether the standard slopes are wanted, or slopes float32 ``[1 or B, N, 1, 1]``.

    Raises:
        TypeError, ValueError: neither a bool nor slopes of each head.
    """
    if isinstance(given, bool | np.bool_):
        return bool(given), None
    if not isinstance(given, jax.Array | np.ndarray) and not hasattr(given, "__jax_array__"):
        raise TypeError(f"alibi is {given!r}; expected a bool or an array of slopes")
    slopes = convert.array("alibi", given)
    if not jnp.issubdtype(slopes.dtype, jnp.floating):
        raise TypeError(f"alibi has dtype {slopes.dtype}; expected floating-point slopes")
    if slopes.shape not in ((heads,), (batch, heads)):
        raise ValueError(
            f"alibi has shape {list(slopes.shape)}; "
            f"expected slopes [{heads}] or [{batch}, {heads}], of each head"
        )
    return False, slopes.astype(jnp.float32).reshape(-1, heads, 1, 1)
