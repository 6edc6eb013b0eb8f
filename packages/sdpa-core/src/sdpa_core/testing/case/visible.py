"""Which queries and keys a case has, and which of them see each other."""

from __future__ import annotations

import numpy as np

from ..logits import Mask, visible_pairs
from .description import Description


def visible_of(case: Description, mask: Mask | None) -> Mask:
    """See ``Case.visible``; ``mask`` is the case's."""
    visible = np.zeros((case.batch, 1, case.tokens_q, case.tokens_kv), dtype=np.bool_)
    for b in range(case.batch):
        sq = case.tokens_q if case.lengths_q is None else case.lengths_q[b]
        skv = case.tokens_kv if case.lengths_kv is None else case.lengths_kv[b]
        visible[b, 0, :sq, :skv] = visible_pairs(case.band, sq, skv)
    return visible if mask is None else visible & mask


def queries_of(case: Description) -> Mask:
    """Boolean ``[B, Sq]``: which queries there are."""
    return _within(case.lengths_q, case.batch, case.tokens_q)


def keys_of(case: Description) -> Mask:
    """Boolean ``[B, Skv]``: which keys there are."""
    return _within(case.lengths_kv, case.batch, case.tokens_kv)


def has_unseen_rows(case: Description, mask: Mask | None) -> bool:
    """Whether there is a query that sees no key; ``mask`` is the case's."""
    if not case.lengths_q and not case.lengths_kv and not case.mask:
        if case.band.is_full:
            return case.tokens_kv == 0 and case.tokens_q > 0
        visible = visible_pairs(case.band, case.tokens_q, case.tokens_kv)
        return not visible.any(axis=1).all()
    return bool((queries_of(case)[:, None] & ~visible_of(case, mask).any(axis=-1)).any())


def _within(lengths: tuple[int, ...] | None, batch: int, tokens: int) -> Mask:
    ends = np.array(lengths or (tokens,) * batch, dtype=np.int64)
    within: Mask = np.arange(tokens) < ends[:, None]
    return within
