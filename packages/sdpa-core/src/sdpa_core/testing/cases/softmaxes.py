"""Sinks and off-by-one softmax. A sink takes part in the maximum (R111)."""

from __future__ import annotations

from ...mask import Alignment, Band
from ...problem import Softmax
from .small import F16, F32, self_attention, small

_CAUSAL, _CAUSAL_BR = Band.causal(), Band.causal(Alignment.BOTTOM_RIGHT)
_SINK, _ONE = Softmax.LEARNABLE, Softmax.OFF_BY_ONE

SOFTMAXES = (
    small("sink", softmax=_SINK),
    small("sink_float32", softmax=_SINK, dtype=F32),
    small("sink_float16_bshd", softmax=_SINK, dtype=F16, layout="bshd"),
    self_attention("sink_causal", softmax=_SINK, band=_CAUSAL, dtype=F32),
    small("sink_causal_br", softmax=_SINK, band=_CAUSAL_BR, dtype=F32),
    self_attention("sink_window", softmax=_SINK, band=Band(7, 0), dtype=F32),
    small("sink_mixed_head_dim", softmax=_SINK, head_dim_v=16, dtype=F32),
    small("sink_decode", softmax=_SINK, tokens_q=1),
    small("sink_decode_float32", softmax=_SINK, tokens_q=1, dtype=F32),
    small("sink_decode_lengths", softmax=_SINK, tokens_q=1, lengths_kv=(36, 4), dtype=F32),
    small("sink_two_queries", softmax=_SINK, tokens_q=2, dtype=F32),
    small("sink_100", softmax=_SINK, sink=100.0, dtype=F32, reports=("R111",)),
    small("sink_100_bfloat16", softmax=_SINK, sink=100.0, reports=("R111",)),
    small("sink_minus_100", softmax=_SINK, sink=-100.0, dtype=F32),
    small("sink_under_large_logits", softmax=_SINK, sink=100.0, logits="large_positive", dtype=F32),
    small("sink_negative_lse", softmax=_SINK, sink=-120.0, logits="very_negative", dtype=F32),
    small("sink_negative_lse_bfloat16", softmax=_SINK, sink=-120.0, logits="very_negative"),
    small("sink_over_tiny_logits", softmax=_SINK, sink=0.5, logits="very_negative", dtype=F32),
    small("sink_empty_keys", softmax=_SINK, tokens_kv=0, dtype=F32, reports=("R111",)),
    small(
        "sink_no_keys",
        softmax=_SINK,
        sink=0.5,
        lengths_kv=(0, 36),
        dtype=F32,
        reports=("R111", "R07"),
    ),
    small("sink_no_keys_bfloat16", softmax=_SINK, sink=0.5, lengths_kv=(36, 0), reports=("R111",)),
    small("sink_lengths", softmax=_SINK, lengths_q=(20, 7), lengths_kv=(11, 30), dtype=F32),
    small("sink_lengths_bfloat16", softmax=_SINK, lengths_q=(13, 20), lengths_kv=(11, 30)),
    small("sink_unseen_rows", softmax=_SINK, tokens_q=36, tokens_kv=20, band=_CAUSAL_BR, dtype=F32),
    small("sink_bias", softmax=_SINK, bias="1hss", dtype=F32),
    small("sink_mask", softmax=_SINK, mask="bhss", dtype=F32),
    small("off_by_one", softmax=_ONE),
    small("off_by_one_float32", softmax=_ONE, dtype=F32),
    self_attention("off_by_one_causal", softmax=_ONE, band=_CAUSAL, dtype=F16),
    small("off_by_one_decode", softmax=_ONE, tokens_q=1, dtype=F32),
    small("off_by_one_large", softmax=_ONE, logits="large_positive", dtype=F32),
    small("off_by_one_negative", softmax=_ONE, logits="very_negative", dtype=F32),
    small("off_by_one_no_keys", softmax=_ONE, lengths_kv=(0, 30), dtype=F32),
    small("off_by_one_empty_keys", softmax=_ONE, tokens_kv=0, dtype=F32),
    small(
        "off_by_one_unseen_rows",
        softmax=_ONE,
        tokens_q=36,
        tokens_kv=20,
        band=_CAUSAL_BR,
        dtype=F32,
    ),
)
