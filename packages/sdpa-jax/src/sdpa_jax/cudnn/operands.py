"""Arrays by role, as ``calls`` describes them, and the memory that a plan is handed."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array, lax

from sdpa_core import AttentionProblem, DType
from sdpa_core.cudnn.graph import Derived, Operand, Rule
from sdpa_core.cudnn.memory import kept, memory_spec
from sdpa_core.layout import Shape, physical_order

from .. import words
from ..sequences import Sequences

#: Operands whose arrays are ``[B, T, N, H]``, which the graph sees as ``[B, H, S, D]``.
_TRANSPOSED = frozenset(
    ("query", "key", "value", "output", "grad_output", "grad_query", "grad_key", "grad_value")
)

#: Operands with a number for each row of the query.
_BY_ROW = frozenset(("stats", "max_logit"))


def memory_axes(operand: Operand) -> tuple[int, ...]:
    """The axes of the graph's operand in the order of its array in memory."""
    return physical_order(operand.shape, operand.strides)


def described(operand: Operand, problem: AttentionProblem) -> jax.ShapeDtypeStruct:
    """The array of a result as it lies in memory."""
    if operand.ragged is not None:
        shape = memory_spec(operand, problem).shape
    else:
        shape = tuple(operand.shape[axis] for axis in memory_axes(operand))
    return jax.ShapeDtypeStruct(shape, operand.dtype.value)


def given(operand: Operand, problem: AttentionProblem, arrays: Mapping[str, Array]) -> Array:
    """What a plan is handed for an input."""
    if operand.constant is not None:
        return _constant(operand)
    if operand.derived is not None:
        return _derived(operand, operand.derived, arrays[operand.derived.source])
    array = arrays[operand.role]
    if operand.ragged is not None:
        return array.reshape(memory_spec(operand, problem).shape)
    if operand.dtype is DType.INT64:
        return array.reshape(*operand.shape, 2)
    logical = _padded(_logical(operand, problem, array, arrays), _stored(operand))
    return logical.transpose(memory_axes(operand))


def result(
    operand: Operand, problem: AttentionProblem, memory: Array, arrays: Mapping[str, Array]
) -> Array:
    """A result by its role from the memory that a plan wrote. Rows of no sequence hold anything.

    Statistics and largest logits are then ``[B, N, T]`` or ``[T, N]``.
    """
    if operand.ragged is not None:
        return memory[..., 0] if operand.role in _BY_ROW else memory
    axes = memory_axes(operand)
    logical = memory.transpose([axes.index(axis) for axis in range(len(axes))])
    wanted = kept(operand, problem)
    if wanted is not None:
        batch, rows = wanted
        logical = logical[:batch, :, :rows]
    if operand.role in _TRANSPOSED:
        return logical.swapaxes(1, 2)
    if operand.role == "grad_sink":
        return logical.reshape(-1)
    if operand.role not in _BY_ROW:
        return logical
    queries = Sequences.of_queries(problem, arrays)
    by_row = logical[..., 0]
    return queries.restored(by_row.swapaxes(1, 2)) if queries.is_packed else by_row


def _logical(
    operand: Operand, problem: AttentionProblem, array: Array, arrays: Mapping[str, Array]
) -> Array:
    """A dense operand with the graph's axes, but for sequences and rows that only fill up."""
    if operand.role in _TRANSPOSED:
        return array.swapaxes(1, 2)
    if operand.role in _BY_ROW:
        if problem.packed_q is not None:
            array = Sequences.of_queries(problem, arrays).dense(array).swapaxes(1, 2)
        return array[..., None]
    if operand.role == "sink":
        return array.reshape(operand.shape)
    if operand.role.startswith("page_table"):
        return array[:, None, :, None]
    return array


def _stored(operand: Operand) -> Shape:
    """The graph's shape, but for axes along which memory is repeated: of those one entry."""
    pairs = zip(operand.shape, operand.strides, strict=True)
    return tuple(1 if stride == 0 else n for n, stride in pairs)


def _padded(array: Array, shape: Shape) -> Array:
    added = [(0, wanted - n) for n, wanted in zip(array.shape, shape, strict=True)]
    return jnp.pad(array, added) if any(n for _, n in added) else array


def _constant(operand: Operand) -> Array:
    assert operand.constant is not None
    shape = tuple(_stored(operand)[axis] for axis in memory_axes(operand))
    if operand.dtype is DType.INT64:
        return jnp.broadcast_to(words.of_int(int(operand.constant)), (*shape, 2))
    return jnp.full(shape, operand.constant, operand.dtype.value)


def _derived(operand: Operand, derived: Derived, source: Array) -> Array:
    """See ``Derived``; one entry for each declared sequence, or one more."""
    count = operand.shape[0]
    if derived.rule is Rule.OFFSETS:
        source = jnp.pad(source, (0, count - len(source)), mode="edge")
        if operand.dtype is DType.INT64:
            pairs = jnp.stack(words.product(derived.multiplier, source), axis=-1)
            return pairs.reshape(*operand.shape, 2)
        return (derived.multiplier * source).reshape(operand.shape)
    if derived.rule is Rule.DIFFERENCES:
        source = jnp.diff(source)
    padded = lax.pad(source, jnp.zeros((), source.dtype), [(0, count - len(source), 0)])
    return padded.reshape(_stored(operand))
