"""The request of ``scaled_dot_product_attention``: all its arguments, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sdpa_core import flag
from sdpa_core.pending import refuse_pending

from . import rng
from .arguments import lengths, logits, masks, numbers, operands
from .convert import fold
from .request import Request

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
    attn_mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    scale: Any = None,
    enable_gqa: Any = False,
    *,
    causal_alignment: Any = "top_left",
    window: Any = None,
    softmax: Any = "vanilla",
    sink: Any = None,
    softcap: Any = None,
    alibi: Any = False,
    score_mod: Any = None,
    score_mod_bprop: Any = None,
    score_mod_args: Any = (),
    seq_lens_q: Any = None,
    seq_lens_kv: Any = None,
    layout: Any = "bhsd",
    return_lse: Any = False,
    return_max_logit: Any = False,
    deterministic: Any = None,
    recipe: Any = None,
    slack_is_finite: Any = False,
    draw: Callable[[torch.device], tuple[Tensor, Tensor]] = rng.draw,
) -> Dense:
    """Check and spell out a call; see the public function.

    Args:
        draw: gives dropout's seed and offset.
    """
    refuse_pending(NAME, {"recipe": recipe})
    query, key, value = operands.tensors(query, key, value)
    layout = operands.layout_of(layout)
    query = operands.to_bhsd(layout, "query", query)
    key = operands.to_bhsd(layout, "key", key)
    value = operands.to_bhsd(layout, "value", value)
    query, key, value, leading = fold(query, key, value, flag("enable_gqa", enable_gqa))
    batch, heads, tokens_q, head_dim = query.shape
    standard, slopes = masks.slopes_of(alibi, query, batch)
    kind, sink = logits.softmax_of(softmax, sink, query)
    modified = logits.modified(
        score_mod,
        score_mod_bprop,
        score_mod_args,
        query,
        (batch, heads, tokens_q, key.shape[2]),
    )
    dropout_p = numbers.dropout_of(dropout_p)
    seed, offset = draw(query.device) if dropout_p else (None, None)
    others = {
        "bias": masks.bias_of(attn_mask, query, key, leading),
        "alibi_slopes": slopes,
        "sink": sink,
        "seq_lens_q": lengths.lengths_of("seq_lens_q", seq_lens_q, query, batch),
        "seq_lens_kv": lengths.lengths_of("seq_lens_kv", seq_lens_kv, query, batch),
        "dropout_seed": seed,
        "dropout_offset": offset,
    }
    request = Request(
        query,
        key,
        value,
        numbers.scale_of(scale, head_dim),
        others,
        band=masks.band_of(is_causal, causal_alignment, window),
        alibi=standard,
        softmax=kind,
        softcap=numbers.softcap_of(softcap),
        dropout_p=dropout_p,
        return_lse=flag("return_lse", return_lse),
        return_max_logit=flag("return_max_logit", return_max_logit),
        deterministic=numbers.is_deterministic(deterministic),
        slack_is_finite=flag("slack_is_finite", slack_is_finite),
        modified=modified,
    )
    return Dense(request, leading, layout)
