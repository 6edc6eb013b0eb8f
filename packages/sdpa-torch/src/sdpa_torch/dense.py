"""The request of ``scaled_dot_product_attention``: all its arguments, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

from sdpa_core import flag
from sdpa_core.pending import refuse_pending

from .arguments import lengths, logits, masks, operands
from .convert import fold
from .request import Request, requested

NAME = "sdpa_torch.scaled_dot_product_attention"


class Dense(NamedTuple):
    """A request with what turns its results into the caller's.

    Attributes:
        request: the call.
        leading: the output's leading axes.
        layout: the order of the caller's axes.
    """

    request: Request
    leading: tuple[int, ...]
    layout: str


def dense(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    *,
    enable_gqa: Any,
    score_mod: Any,
    score_mod_bprop: Any,
    score_mod_args: Any,
    seq_lens_q: Any,
    seq_lens_kv: Any,
    layout: Any,
    recipe: Any,
    **others: Any,
) -> Dense:
    """Check and spell out a call; see the public function.

    Args:
        others: as ``requested`` takes them.
    """
    refuse_pending(NAME, {"recipe": recipe})
    query, key, value = operands.tensors(query, key, value)
    layout = operands.layout_of(layout)
    query = operands.to_bhsd(layout, "query", query)
    key = operands.to_bhsd(layout, "key", key)
    value = operands.to_bhsd(layout, "value", value)
    query, key, value, leading = fold(query, key, value, flag("enable_gqa", enable_gqa))
    batch, heads, tokens_q, _ = query.shape
    pairs = (batch, heads, tokens_q, key.shape[2])
    modified = logits.modified(score_mod, score_mod_bprop, score_mod_args, query, pairs)
    further = {
        "bias": masks.bias_of(attn_mask, query, key, leading),
        "seq_lens_q": lengths.lengths_of("seq_lens_q", seq_lens_q, query, batch),
        "seq_lens_kv": lengths.lengths_of("seq_lens_kv", seq_lens_kv, query, batch),
    }
    request = requested(query, key, value, further, batch=batch, modified=modified, **others)
    return Dense(request, leading, layout)
