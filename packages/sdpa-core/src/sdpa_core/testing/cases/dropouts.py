"""Dropout: the decisions are those of cuDNN's generator."""

from __future__ import annotations

from ...mask import Alignment, Band
from ...problem import Softmax
from .small import F16, F32, self_attention, small

_CAUSAL, _CAUSAL_BR = Band.causal(), Band.causal(Alignment.BOTTOM_RIGHT)

DROPOUTS = (
    small("dropout", dropout_p=0.25, reports=("R91", "R93")),
    small("dropout_float32", dropout_p=0.25, dtype=F32),
    small("dropout_float16_bshd", dropout_p=0.1, dtype=F16, layout="bshd"),
    small("dropout_half", dropout_p=0.5, dtype=F32),
    small("dropout_most", dropout_p=0.9, dtype=F32),
    self_attention("dropout_causal", dropout_p=0.2, band=_CAUSAL, dtype=F32),
    self_attention("dropout_window", dropout_p=0.2, band=Band(8, 0), dtype=F32),
    small("dropout_causal_br", dropout_p=0.2, band=_CAUSAL_BR, dtype=F32),
    small("dropout_bias", dropout_p=0.2, bias="1hss", dtype=F32),
    small("dropout_mask", dropout_p=0.2, mask="b1ss", dtype=F32),
    small("dropout_lengths", dropout_p=0.2, lengths_q=(20, 7), lengths_kv=(11, 30), dtype=F32),
    small("dropout_sink", dropout_p=0.2, softmax=Softmax.LEARNABLE, dtype=F32),
    small("dropout_softcap", dropout_p=0.2, softcap=1.0, dtype=F32),
    small("dropout_alibi", dropout_p=0.2, alibi="standard", tokens_q=36, band=_CAUSAL, dtype=F32),
    small("dropout_negative_lse", dropout_p=0.2, logits="very_negative", dtype=F32),
    small("dropout_decode", dropout_p=0.2, tokens_q=1, dtype=F32),
    small("dropout_empty_keys", dropout_p=0.2, tokens_kv=0, dtype=F32),
    # Enough elements to count what is kept.
    self_attention("dropout_rate", dropout_p=0.1, batch=4, tokens_q=64, tokens_kv=64, dtype=F32),
)
