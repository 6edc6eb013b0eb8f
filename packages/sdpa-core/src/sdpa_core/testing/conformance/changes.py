"""Parts of the inputs that must not matter, and inputs in which they are changed."""

from __future__ import annotations

import numpy as np

from ..case import Case, Inputs
from ..logits import Array, Mask


def with_slack(case: Case, slack: float) -> Inputs:
    """The case's inputs with another number past the lengths of dense operands."""
    inputs = case.arrays()
    beyond_q, beyond_kv = ~case.exists_q(), ~case.exists_kv()
    if case.page_size is not None:
        beyond_kv[...] = False
    return inputs._replace(
        query=_filled(inputs.query, beyond_q, slack),
        key=_filled(inputs.key, beyond_kv, slack),
        value=_filled(inputs.value, beyond_kv, slack),
        grad_output=_filled(inputs.grad_output, beyond_q, slack),
    )


def _filled(array: Array, rows: Mask, number: float) -> Array:
    """``[B, H, S, D]`` with ``number`` where ``rows [B, S]`` is True."""
    return np.where(rows[:, None, :, None], number, array)


def unseen_rows(case: Case) -> Mask:
    """``[B, Hq, Sq]``: queries that exist and see nothing."""
    unseen = case.exists_q()[:, None] & ~case.visible().any(axis=-1)
    return np.broadcast_to(unseen, case.output_shape[:3])


def hidden_from_first_rows(case: Case) -> tuple[int, Mask]:
    """Half of the queries, as a number of leading rows, and the keys that none of them sees.

    The keys are boolean ``[B, Skv]``; only those that exist.
    """
    rows = (case.tokens_q + 1) // 2
    visible = case.visible()
    seen = np.any(visible[:, :, :rows], axis=(1, 2))
    return rows, case.exists_kv() & np.logical_not(seen)
