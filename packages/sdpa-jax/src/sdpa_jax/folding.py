"""An axis mapped by ``jax.vmap`` as more batch, where that gives what a loop would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
from jax import Array

#: Operands with one entry for each sequence. Bias and slopes may also have one for all of them;
#: a sink has none.
_SHARED_BY_SEQUENCES = frozenset(("bias", "alibi_slopes"))

#: What ties an example to its place in the batch or in a packed array.
_PLACED = ("cu_seqlens_q", "cu_seqlens_kv", "page_table_k", "dropout_seed", "score_mod")


def folds(mapped: Mapping[str, bool], *, has_score_mod: bool, gives_sink_gradient: bool) -> bool:
    """Whether a mapped axis may become batch.

    Args:
        mapped: for each operand by role whether it has the mapped axis.
        has_score_mod: functions of the logits may read the number of the sequence.
        gives_sink_gradient: the gradient of each example is wanted, not their sum.
    """
    placed = has_score_mod or gives_sink_gradient or any(role in mapped for role in _PLACED)
    return not placed and not mapped.get("sink", False)


def fold(
    operands: Mapping[str, Array], mapped: Mapping[str, bool], axis_size: int, each: Sequence[str]
) -> list[Array]:
    """The operands with ``axis_size`` times the batch.

    Args:
        operands: by role; those that are mapped have the axis in front.
        each: roles that must get an entry for each sequence even if they have one for all.
    """
    batch = operands["query"].shape[1 if mapped["query"] else 0]
    return [
        _folded(role, array, mapped[role], axis_size, batch, role in each)
        for role, array in operands.items()
    ]


def _folded(
    role: str, array: Array, is_mapped: bool, axis_size: int, batch: int, each: bool
) -> Array:
    if role == "sink":
        return array
    if role in _SHARED_BY_SEQUENCES:
        own = array.shape[1:] if is_mapped else array.shape
        if own[0] == 1 and not is_mapped and not each:
            return array
        own = (batch, *own[1:])
    else:
        own = array.shape[1:] if is_mapped else array.shape
    if not is_mapped:
        array = array[None]
    return jnp.broadcast_to(array, (axis_size, *own)).reshape(axis_size * batch, *own[1:])


def unfold(role: str, result: Array, axis_size: int, entries: int) -> Array:
    """A result with the mapped axis in front.

    Args:
        role: whose result it is.
        entries: that it should have for one example: 1 for the gradient of a bias that the
            sequences share, whose shares are summed; else the batch.
    """
    batch = result.shape[0] // axis_size if axis_size else entries
    result = result.reshape(axis_size, batch, *result.shape[1:])
    if role == "grad_bias" and entries == 1 != batch:
        wide = jnp.promote_types(result.dtype, jnp.float32)
        return result.astype(wide).sum(1, keepdims=True).astype(result.dtype)
    return result
