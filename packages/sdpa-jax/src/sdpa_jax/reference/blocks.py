"""Query rows cut into blocks, so that no array holds all pairs of queries and keys."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from sdpa_core import AttentionProblem

#: Query rows that are processed together.
BLOCK = 256


@dataclass(frozen=True, slots=True)
class Blocks:
    """How query rows are cut into blocks, the last one filled up with rows of zeros.

    Filling rows are harmless: their ``dO`` is 0, hence all that they add to ``dK`` and ``dV``.

    Attributes:
        rows: in a block.
        count: of blocks.
        tokens: real query rows, T.
        groups: ``(K, N // K)``: key heads are never repeated.
        wide: the type of accumulation.
    """

    rows: int
    count: int
    tokens: int
    groups: tuple[int, int]
    wide: jnp.dtype

    @classmethod
    def of(cls, problem: AttentionProblem, wide: jnp.dtype) -> Blocks:
        rows = min(problem.tokens_q, BLOCK)
        return cls(
            rows=rows,
            count=-(-problem.tokens_q // rows),
            tokens=problem.tokens_q,
            groups=(problem.heads_kv, problem.heads // problem.heads_kv),
            wide=wide,
        )

    @property
    def starts(self) -> Array:
        """The first row of each block."""
        return jnp.arange(self.count, dtype=jnp.int32) * self.rows

    def split(self, array: Array, filling: float = 0.0) -> Array:
        """``[B, T, N, X]`` as ``[count, B, K, N // K, rows, X]``, in the type of accumulation."""
        batch, tokens, _, width = array.shape
        added = ((0, 0), (0, self.count * self.rows - tokens), (0, 0), (0, 0))
        array = jnp.pad(array.astype(self.wide), added, constant_values=filling)
        array = array.reshape(batch, self.count, self.rows, *self.groups, width)
        return array.transpose(1, 0, 3, 4, 2, 5)

    def join(self, blocks: Array) -> Array:
        """The inverse of ``split``, but for the type."""
        batch, width = blocks.shape[1], blocks.shape[-1]
        heads_kv, group = self.groups
        array = blocks.transpose(1, 0, 4, 2, 3, 5)
        array = array.reshape(batch, self.count * self.rows, heads_kv * group, width)
        return array[:, : self.tokens]

    def split_pairs(self, array: Array) -> Array:
        """``[b, h, T, s]`` as ``[count, b, h, rows, s]``: of a bias that has its own rows."""
        batch, heads, tokens, width = array.shape
        filling = self.count * self.rows - tokens
        array = jnp.pad(array, ((0, 0), (0, 0), (0, filling), (0, 0)))
        return jnp.moveaxis(array.reshape(batch, heads, self.count, self.rows, width), 2, 0)

    def join_pairs(self, blocks: Array) -> Array:
        """The inverse of ``split_pairs``."""
        count, batch, heads, rows, width = blocks.shape
        array = jnp.moveaxis(blocks, 0, 2).reshape(batch, heads, count * rows, width)
        return array[:, :, : self.tokens]

    def grouped(self, pairs: Array) -> Array:
        """``[B, N, rows, S]`` as ``[B, K, N // K, rows, S]``."""
        batch, _, rows, width = pairs.shape
        return pairs.reshape(batch, *self.groups, rows, width)

    def flat(self, pairs: Array) -> Array:
        """The inverse of ``grouped``."""
        batch, heads_kv, group, rows, width = pairs.shape
        return pairs.reshape(batch, heads_kv * group, rows, width)
