"""What is special about a case, as words."""

from __future__ import annotations

from ...problem import Softmax
from .description import Description

_LARGE = 512
_MANY = 1000


def tags_of(case: Description, *, unseen_rows: bool) -> frozenset[str]:
    """See ``Case.tags``; ``unseen_rows`` says whether the case has that one."""
    dims = (case.head_dim, case.head_dim_v)
    lengths = (case.lengths_q or ()) + (case.lengths_kv or ())
    bounds = (case.band.left, case.band.right)
    facts = {
        "slice": all(d % 8 == 0 and d <= 256 for d in dims),
        "alibi": case.alibi is not None,
        "batch_of_one": case.batch == 1,
        "bias": case.bias is not None,
        "causal": case.band.left is None and case.band.right == 0,
        "cross": case.tokens_q != case.tokens_kv,
        "decode": case.tokens_q == 1,
        "dropout": case.dropout_p > 0,
        "empty": 0 in (case.batch, case.tokens_q, case.tokens_kv),
        "empty_sequence": 0 in lengths,
        "expanded": case.layout == "expanded_kv",
        "gaps": any(p is not None and p.tokens > sum(p.lengths) for p in case.packings),
        "gqa": case.heads != case.heads_kv,
        "large": max(case.tokens_q, case.tokens_kv) >= _LARGE,
        "lengths": case.lengths_q is not None or case.lengths_kv is not None,
        "many_rows": case.batch * case.heads * case.tokens_q >= _MANY,
        "mask": case.mask is not None,
        "mixed_head_dim": case.head_dim != case.head_dim_v,
        "negative_lse": "very_negative" in (case.logits, case.bias_values),
        "packed": case.packed is not None,
        "paged": case.page_size is not None,
        "scale": case.scale is not None,
        "score_mod": case.score_mod is not None,
        "sink": case.softmax is not Softmax.VANILLA,
        "slack": _has_slack(case),
        "softcap": case.softcap is not None,
        "strided": case.layout not in {"bhsd", "unaligned"},
        "unaligned": case.layout == "unaligned",
        "unseen_rows": unseen_rows,
        "window": case.band.left is not None or bounds[1] not in (None, 0),
    }
    return frozenset(name for name, holds in facts.items() if holds)


def _has_slack(case: Description) -> bool:
    """Whether dense operands have rows past a length."""
    sides = (
        (case.lengths_q, case.tokens_q, case.packs_q),
        (case.lengths_kv, case.tokens_kv, case.packs_kv or case.page_size is not None),
    )
    return any(
        lengths is not None and not elsewhere and min(lengths, default=tokens) < tokens
        for lengths, tokens, elsewhere in sides
    )
