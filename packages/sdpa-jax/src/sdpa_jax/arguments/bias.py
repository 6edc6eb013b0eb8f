"""What is added to the logits: bias, masks, segments, ALiBi."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sdpa_core import flag
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
    array = convert.array("bias", given, _pairs(pairs))
    if array.dtype not in (dtype, jnp.float32):
        expected = dict.fromkeys((jnp.dtype(dtype).name, "float32"))
        raise TypeError(f"bias has dtype {array.dtype}; expected {' or '.join(expected)}")
    return _by_pairs("bias", array, pairs)


def _mask(given: object, pairs: Shape) -> Array:
    array = convert.array("mask", given, f"bool {_pairs(pairs)}")
    if array.dtype != jnp.bool_:
        raise TypeError(f"mask has dtype {array.dtype}; expected bool. What is added is a bias")
    return _by_pairs("mask", array, pairs)


def _by_pairs(name: str, array: Array, pairs: Shape) -> Array:
    """Of rank 4 and with all the keys."""
    rank_4 = (1,) * (4 - array.ndim) + array.shape
    fits = len(rank_4) == 4 and all(n in (1, m) for n, m in zip(rank_4, pairs, strict=True))
    if not fits:
        raise ValueError(f"{name} has shape {list(array.shape)}; expected one {_pairs(pairs)}")
    return jnp.broadcast_to(array.reshape(rank_4), (*rank_4[:3], pairs[3]))


def _pairs(pairs: Shape) -> str:
    """In words, what is added to logits of this shape."""
    return f"broadcastable to [batch, heads, query tokens, key tokens] = {list(pairs)}"


def _same_segment(given: object, pairs: Shape) -> Array:
    batch, _, tokens_q, tokens_kv = pairs
    queries, keys = (batch, tokens_q), (batch, tokens_kv)
    pair = f"a pair of the queries' {list(queries)} and the keys' {list(keys)}"
    if not isinstance(given, tuple | list):
        form = f"integers {list(queries)}, or {pair}" if keys == queries else pair
        own = _ids("segment_ids", given, queries, form)
        other = own if keys == queries else _ids("segment_ids", given, keys, form)
    elif len(given) == 2:
        own = _ids("segment_ids[0]", given[0], queries, f"integers {list(queries)} of the queries")
        other = _ids("segment_ids[1]", given[1], keys, f"integers {list(keys)} of the keys")
    else:
        raise ValueError(
            f"segment_ids has {len(given)} parts; expected one array of integers, or {pair}"
        )
    return (own[:, :, None] == other[:, None, :])[:, None]


def _ids(name: str, given: object, shape: Shape, form: str) -> Array:
    array = convert.array(name, given, form)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} has dtype {array.dtype}; expected {form}")
    if isinstance(given, np.ndarray) and (given != given.astype(array.dtype)).any():
        raise ValueError(f"{name} has ids that {array.dtype} cannot hold (jax_enable_x64 is off)")
    if array.ndim == 1 and shape[0] == 1:
        array = array[None]
    if array.shape != shape:
        raise ValueError(f"{name} has shape {list(array.shape)}; expected {form}")
    return array


def alibi(given: object, batch: int, heads: int) -> tuple[bool, Any]:
    """Whether the standard slopes are wanted, or slopes float32 ``[1 or B, N, 1, 1]``.

    Raises:
        TypeError, ValueError: neither a bool nor slopes of each head.
    """
    axes = f"[{heads}] or [{batch}, {heads}], of each head"
    if not isinstance(given, jax.Array | np.ndarray) and not hasattr(given, "__jax_array__"):
        try:
            return flag("alibi", given), None
        except TypeError:
            raise TypeError(
                f"alibi is of type {type(given).__name__}; expected True or False, or an array of "
                f"slopes {axes}"
            ) from None
    slopes = convert.array("alibi", given)
    if not jnp.issubdtype(slopes.dtype, jnp.floating):
        raise TypeError(f"alibi has dtype {slopes.dtype}; expected floating-point slopes")
    if slopes.shape not in ((heads,), (batch, heads)):
        raise ValueError(f"alibi has shape {list(slopes.shape)}; expected slopes {axes}")
    return False, slopes.astype(jnp.float32).reshape(-1, heads, 1, 1)
