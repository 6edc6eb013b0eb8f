"""Which keys a query sees, and how far away they are."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from sdpa_core import Alignment, AttentionProblem, Band

from ..sequences import Sequences, shift_of_diagonal


@dataclass(frozen=True, slots=True)
class Masks:
    """Positions of a block's queries and of all keys.

    Attributes:
        band: which keys a query sees.
        queries, keys: their lengths.
        shift: of the band's diagonal, in tokens.
        rows: queries in a block.
    """

    band: Band
    queries: Sequences
    keys: Sequences
    shift: ArrayLike
    rows: int

    @classmethod
    def of(cls, problem: AttentionProblem, queries: Sequences, keys: Sequences, rows: int) -> Masks:
        bottom_right = problem.band.alignment is Alignment.BOTTOM_RIGHT
        shift = shift_of_diagonal(queries, keys) if bottom_right else 0
        return cls(problem.band, queries, keys, shift, rows)

    def distance(self, start: Array) -> Array:
        """``j - i - shift`` of a block's pairs, int32 ``[1 or B, 1, rows, S]``."""
        return self._keys() - self._queries(start) - self.shift

    def visible(self, start: Array) -> Array | None:
        """Bool ``[1 or B, 1, 1 or rows, 1 or S]``; None: every query sees every key."""
        conditions = []
        if not self.band.is_full:
            distance = self.distance(start)
            if self.band.left is not None:
                conditions.append(distance >= -self.band.left)
            if self.band.right is not None:
                conditions.append(distance <= self.band.right)
        if self.queries.lengths is not None:
            conditions.append(self._queries(start) < self.queries.lengths[:, None, None, None])
        if self.keys.lengths is not None:
            conditions.append(self._keys() < self.keys.lengths[:, None, None, None])
        result = None
        for condition in conditions:
            result = condition if result is None else result & condition
        return result

    def rows_exist(self, start: Array) -> Array:
        """Bool ``[1 or B, 1, rows, 1]``: which of a block's rows are queries."""
        if self.queries.lengths is None:
            return self._queries(start) < self.queries.longest
        return self._queries(start) < self.queries.lengths[:, None, None, None]

    def index(self, axis: int, start: Array, shape: tuple[int, ...]) -> Array:
        """Positions along an axis of ``[B, N, T, S]``, int32, for a block's pairs."""
        position = lax.broadcasted_iota(jnp.int32, shape, axis)
        return start + position if axis == _QUERY_AXIS else position

    def _queries(self, start: Array) -> Array:
        return start + lax.broadcasted_iota(jnp.int32, (1, 1, self.rows, 1), _QUERY_AXIS)

    def _keys(self) -> Array:
        return lax.broadcasted_iota(jnp.int32, (1, 1, 1, self.keys.longest), 3)


_QUERY_AXIS = 2
