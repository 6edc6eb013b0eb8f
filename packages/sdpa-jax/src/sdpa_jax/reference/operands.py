"""The operands as the blocks read them: dense, one sequence a row of the batch, slack cleared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from sdpa_core import AttentionProblem
from sdpa_core.problem import Softmax

from ..convert import accumulation_type
from ..pages import without_pages
from ..philox import keep_mask
from ..sequences import Sequences
from .blocks import Blocks
from .logits import Logits
from .masks import Masks


@dataclass(frozen=True, slots=True)
class Operands:
    """A problem's operands as both passes use them: dense, cleared, in the type of accumulation.

    Attributes:
        problem: the one that was posed.
        operands: as they were given.
        queries, keys_of: the sequences of each side.
        query: dense, in its own type.
        keys, values: ``[B, S, K, H or Hv]``.
        sink: ``[1, N, 1, 1]``; None for none.
    """

    problem: AttentionProblem
    operands: Mapping[str, Array]
    blocks: Blocks
    masks: Masks
    logits: Logits
    queries: Sequences
    keys_of: Sequences
    query: Array
    keys: Array
    values: Array
    sink: Array | None

    @classmethod
    def of(
        cls,
        problem: AttentionProblem,
        scalars: tuple[float, ...],
        operands: Mapping[str, Array],
    ) -> Operands:
        wide = accumulation_type(operands["query"].dtype)
        key, value = without_pages(problem, operands)
        queries = Sequences.of_queries(problem, operands)
        keys = Sequences.of_keys(problem, operands)
        blocks = Blocks.of(problem, wide)
        masks = Masks.of(problem, queries, keys, blocks.rows)
        return cls(
            problem=problem,
            operands=operands,
            blocks=blocks,
            masks=masks,
            logits=Logits.of(problem, scalars, blocks, masks, operands),
            queries=queries,
            keys_of=keys,
            query=queries.dense(operands["query"]),
            keys=keys.dense(key).astype(wide),
            values=keys.dense(value).astype(wide),
            sink=_sink(problem, operands, wide),
        )

    def dropped(self, start: Array, weights: Array) -> Array:
        """``[B, N, rows, S]`` with the dropped pairs 0 and the others divided by ``1 - p``."""
        p = self.problem.dropout_p
        if p == 0:
            return weights
        kept = keep_mask(
            self.operands["dropout_seed"],
            self.operands["dropout_offset"],
            p,
            self.problem.batch,
            self.problem.heads,
            self.problem.tokens_q,
            start,
            self.blocks.rows,
            self.problem.tokens_kv,
        )
        return jnp.where(kept, weights / (1 - p), 0.0)


def _sink(
    problem: AttentionProblem, operands: Mapping[str, Array], wide: jnp.dtype
) -> Array | None:
    if problem.softmax is Softmax.VANILLA:
        return None
    if problem.softmax is Softmax.OFF_BY_ONE:
        return jnp.zeros((1, problem.heads, 1, 1), wide)
    return operands["sink"].astype(wide).reshape(1, -1, 1, 1)
