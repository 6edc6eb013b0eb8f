"""Sequences with lengths of their own: which rows of an array exist, packed rows and back.

An array of one side is ``[B, S, ...]``, or, packed, ``[T, ...]`` with the sequences one after
another. Lengths and starts are known on the device only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from sdpa_core import AttentionProblem


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of one side.

    Attributes:
        longest: tokens of the longest sequence, as far as it is known.
        lengths: int32 ``[B]``; None: all are ``longest``.
        starts: int32 ``[B]``, the first row of each packed sequence; None: not packed.
        rows: of the packed array.
    """

    longest: int
    lengths: Array | None = None
    starts: Array | None = None
    rows: int = 0

    @classmethod
    def of_queries(cls, problem: AttentionProblem, operands: Mapping[str, Array]) -> Sequences:
        rows = problem.packed_q.tokens if problem.packed_q else 0
        return cls._of("q", problem.tokens_q, rows, operands)

    @classmethod
    def of_keys(cls, problem: AttentionProblem, operands: Mapping[str, Array]) -> Sequences:
        rows = problem.packed_kv.tokens if problem.packed_kv else 0
        return cls._of("kv", problem.tokens_kv, rows, operands)

    @classmethod
    def _of(cls, side: str, longest: int, rows: int, operands: Mapping[str, Array]) -> Sequences:
        bounds = operands.get(f"cu_seqlens_{side}")
        if bounds is not None:
            starts = operands.get(f"cu_seqlens_{side}_padded", bounds)[:-1]
            return cls(longest, jnp.minimum(jnp.diff(bounds), longest), starts, rows)
        lengths = operands.get(f"seq_lens_{side}")
        return cls(longest, None if lengths is None else jnp.minimum(lengths, longest))

    @property
    def is_packed(self) -> bool:
        return self.starts is not None

    def exist(self) -> Array | None:
        """Which rows belong to a sequence: bool ``[B, S]`` or ``[T]``; None: all of them."""
        if self.is_packed:
            return self._owners()[2]
        return self.exist_dense()

    def exist_dense(self) -> Array | None:
        """The same for an array ``[B, S, ...]``, also of packed sequences."""
        if self.lengths is None:
            return None
        return jnp.arange(self.longest, dtype=jnp.int32) < self.lengths[:, None]

    def by_row(self, values: Array) -> Array:
        """``[B]`` for each row of an array: ``[B, 1]``, or packed ``[T]``."""
        return values[self._owners()[0]] if self.is_packed else values[:, None]

    def cleared(self, array: Array, filling: ArrayLike = 0) -> Array:
        """``array`` with ``filling`` in rows of no sequence, whatever these hold."""
        return _where(self.exist(), array, filling)

    def dense(self, array: Array) -> Array:
        """``[T, ...]`` as ``[B, S, ...]``, 0 past the end of a sequence; or just cleared."""
        if self.starts is None:
            return self.cleared(array)
        rows = self.starts[:, None] + jnp.arange(self.longest, dtype=jnp.int32)
        return _where(self.exist_dense(), array.at[rows].get(mode="clip"), 0)

    def restored(self, array: Array, filling: ArrayLike = 0) -> Array:
        """``[B, S, ...]`` as ``[T, ...]``; or as it is. ``filling`` in rows of no sequence."""
        if self.starts is None:
            return self.cleared(array, filling)
        sequence, position, exists = self._owners()
        return _where(exists, array.at[sequence, position].get(mode="clip"), filling)

    def _owners(self) -> tuple[Array, Array, Array]:
        """For each packed row: a sequence, the position in it, and whether it is one of its."""
        assert self.starts is not None
        assert self.lengths is not None
        row = jnp.arange(self.rows, dtype=jnp.int32)
        # The last sequence that has started: an empty one starts where the next one does.
        started = jnp.zeros(self.rows, jnp.int32).at[self.starts].add(1, mode="drop")
        sequence = jnp.maximum(jnp.cumsum(started, dtype=jnp.int32) - 1, 0)
        position = row - self.starts[sequence]
        return sequence, position, (position >= 0) & (position < self.lengths[sequence])


def shift_of_diagonal(queries: Sequences, keys: Sequences) -> ArrayLike:
    """Key tokens minus query tokens of each sequence: an int, or int32 ``[B, 1, 1, 1]``."""
    if queries.lengths is None and keys.lengths is None:
        return keys.longest - queries.longest
    many = keys.longest if keys.lengths is None else keys.lengths
    few = queries.longest if queries.lengths is None else queries.lengths
    return lax.expand_dims(jnp.asarray(many - few, jnp.int32), (1, 2, 3))


def _where(exists: Array | None, array: Array, filling: ArrayLike) -> Array:
    if exists is None:
        return array
    exists = lax.expand_dims(exists, range(exists.ndim, array.ndim))
    return jnp.where(exists, array, jnp.asarray(filling, array.dtype))
