"""Keys and values in pages, gathered."""

from __future__ import annotations

from collections.abc import Mapping

from jax import Array

from sdpa_core import AttentionProblem


def without_pages(problem: AttentionProblem, operands: Mapping[str, Array]) -> tuple[Array, Array]:
    """Key and value ``[B, S, K, X]``, of pools ``[pages, page size, K, X]`` or as they are.

    A table's entries past a sequence's end may hold any number.
    """
    key, value = operands["key"], operands["value"]
    if problem.paged is None:
        return key, value
    tokens = problem.paged.tokens
    return (
        _gathered(key, operands["page_table_k"], tokens),
        _gathered(value, operands["page_table_v"], tokens),
    )


def _gathered(pool: Array, table: Array, tokens: int) -> Array:
    pages = pool.at[table].get(mode="clip")
    batch, count, size, *rest = pages.shape
    return pages.reshape(batch, count * size, *rest)[:, :tokens]
