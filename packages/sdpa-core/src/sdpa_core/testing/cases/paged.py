"""Keys and values in pages, for inference."""

from __future__ import annotations

from typing import Any

from ...mask import Alignment, Band
from ...problem import Softmax
from ..case import Case
from .small import F16, F32, small

_BR = Alignment.BOTTOM_RIGHT
_CAUSAL_BR = Band.causal(_BR)


def _paged(name: str, **fields: Any) -> Case:
    """Three sequences in pages of 8; the last page of each is partly used, or full."""
    usual = {
        "batch": 3,
        "tokens_q": 4,
        "tokens_kv": 40,
        "lengths_kv": (37, 8, 17),
        "page_size": 8,
        "band": _CAUSAL_BR,
    }
    return small(name, **{**usual, **fields})


PAGED = (
    _paged("paged"),
    _paged("paged_float32", dtype=F32),
    _paged("paged_full", band=Band(), dtype=F32),
    _paged("paged_value_table", own_value_table=True, dtype=F32),
    _paged("paged_value_table_float16", own_value_table=True, dtype=F16),
    _paged("paged_decode", tokens_q=1),
    _paged("paged_decode_gqa", tokens_q=1, heads=8, heads_kv=1, dtype=F32),
    _paged("paged_decode_float16", tokens_q=1, heads=8, heads_kv=2, dtype=F16, reports=("R26",)),
    # A table whose last page is only part of the longest sequence (R63).
    _paged(
        "paged_odd_tokens",
        batch=4,
        tokens_q=1,
        tokens_kv=100,
        page_size=16,
        lengths_kv=(100, 99, 97, 16),
        dtype=F32,
        reports=("R63",),
    ),
    _paged("paged_page_of_one", page_size=1, dtype=F32),
    _paged("paged_one_page", page_size=64, dtype=F32),
    _paged(
        "paged_few_queries",
        batch=2,
        heads=4,
        heads_kv=1,
        head_dim=128,
        head_dim_v=128,
        page_size=16,
        lengths_kv=(40, 23),
        reports=("R61",),
    ),
    _paged("paged_no_keys", lengths_kv=(37, 0, 17), dtype=F32, reports=("R07",)),
    _paged("paged_no_keys_bfloat16", tokens_q=1, lengths_kv=(0, 8, 17)),
    _paged("paged_window", band=Band(6, 0, _BR), dtype=F32),
    _paged("paged_mixed_head_dim", head_dim=64, head_dim_v=32, dtype=F32),
    _paged("paged_sink", softmax=Softmax.LEARNABLE, dtype=F32),
    _paged(
        "paged_sink_no_keys",
        softmax=Softmax.LEARNABLE,
        lengths_kv=(37, 0, 17),
        dtype=F32,
        reports=("R111",),
    ),
    _paged("paged_sink_decode", tokens_q=1, softmax=Softmax.LEARNABLE),
    _paged("paged_off_by_one", softmax=Softmax.OFF_BY_ONE, dtype=F32),
    _paged("paged_softcap", softcap=1.0, dtype=F32),
    _paged("paged_bshd", layout="bshd"),
    _paged("paged_lengths_q", lengths_q=(4, 1, 3), dtype=F32),
    _paged("paged_negative_lse", logits="very_negative", dtype=F32),
    # Packed queries: prefill and decode together (R65).
    _paged(
        "paged_packed_q", tokens_q=9, lengths_q=(9, 1, 4), packed="q", dtype=F32, reports=("R65",)
    ),
    _paged(
        "paged_packed_q_bfloat16", tokens_q=9, lengths_q=(9, 1, 4), packed="q", reports=("R65",)
    ),
    _paged(
        "paged_packed_q_gaps",
        tokens_q=9,
        lengths_q=(9, 1, 4),
        packed="q",
        gaps_q=(1, 7, 0),
        dtype=F32,
    ),
    _paged(
        "paged_packed_q_decode",
        tokens_q=1,
        lengths_q=(1, 0, 1),
        packed="q",
        dtype=F32,
        reports=("R08", "R65"),
    ),
)
