"""Packed sequences, with and without gaps, on both sides or one."""

from __future__ import annotations

from typing import Any

from ...mask import Alignment, Band
from ...problem import Softmax
from ..case import Case
from .small import F16, F32, small

_BR = Alignment.BOTTOM_RIGHT
_CAUSAL, _CAUSAL_BR = Band.causal(), Band.causal(_BR)
_SINK = Softmax.LEARNABLE


def _packed(name: str, **fields: Any) -> Case:
    """Three sequences of up to 16 queries and 24 keys, no two lengths alike."""
    usual = {
        "batch": 3,
        "tokens_q": 16,
        "tokens_kv": 24,
        "lengths_q": (5, 16, 9),
        "lengths_kv": (24, 7, 11),
        "packed": "both",
    }
    return small(name, **{**usual, **fields})


def _self(name: str, lengths: tuple[int, ...], **fields: Any) -> Case:
    """Queries and keys of the same sequences."""
    usual = {
        "batch": len(lengths),
        "tokens_q": max(lengths),
        "tokens_kv": max(lengths),
        "lengths_q": lengths,
        "lengths_kv": lengths,
        "packed": "both",
    }
    return small(name, **{**usual, **fields})


def _bands() -> tuple[Case, ...]:
    bands = {
        "": Band(),
        "_causal": _CAUSAL,
        "_causal_br": _CAUSAL_BR,
        "_window": Band(4, 0),
        "_window_br": Band(4, 2, _BR),
    }
    return tuple(
        _packed(f"packed{suffix}{gaps}", band=band, dtype=F32, **_GAPS[gaps])
        for suffix, band in bands.items()
        for gaps in _GAPS
    )


_GAPS: dict[str, dict[str, Any]] = {
    "": {},
    "_gaps": {"gaps_q": (3, 0, 7), "gaps_kv": (0, 9, 5)},
}

PACKED = (
    *_bands(),
    _packed("packed_bfloat16", layout="bshd"),
    _packed("packed_float16_gaps", dtype=F16, **_GAPS["_gaps"]),
    _packed("packed_causal_br_bfloat16", band=_CAUSAL_BR, reports=("R36",)),
    _self(
        "packed_unlike_tokens",
        (5, 3),
        lengths_kv=(9, 3),
        tokens_kv=9,
        band=_CAUSAL,
        dtype=F32,
        reports=("R36",),
    ),
    _self(
        "packed_unlike_tokens_br",
        (5, 3),
        lengths_kv=(9, 3),
        tokens_kv=9,
        band=_CAUSAL_BR,
        dtype=F32,
        reports=("R36",),
    ),
    _self(
        "packed_padded_starts",
        (3, 2, 4),
        gaps_q=(1, 2, 1),
        gaps_kv=(1, 2, 1),
        heads=2,
        dtype=F32,
        reports=("R56",),
    ),
    _self(
        "packed_padded_starts_bfloat16",
        (3, 2, 4),
        gaps_q=(1, 2, 1),
        gaps_kv=(1, 2, 1),
        heads=2,
        head_dim=64,
        head_dim_v=64,
        reports=("R56",),
    ),
    _self(
        "packed_mostly_short",
        (9, 8, 8, 12, 8, 12),
        gaps_q=(3, 0, 0, 0, 0, 0),
        gaps_kv=(3, 0, 0, 0, 0, 0),
        dtype=F32,
        reports=("R57",),
    ),
    _packed("packed_tail", packed_tail=6, dtype=F32, reports=("R56",)),
    _packed("packed_tail_gaps", packed_tail=6, dtype=F16, **_GAPS["_gaps"]),
    _packed("packed_gaps_q", gaps_q=(3, 0, 7), dtype=F32),
    _packed("packed_gaps_kv", gaps_kv=(3, 0, 7), dtype=F32),
    # Lengths of 0 (R07, R08).
    _packed(
        "packed_no_keys",
        batch=4,
        lengths_q=(4, 16, 3, 2),
        lengths_kv=(24, 0, 11, 5),
        reports=("R07",),
    ),
    _packed("packed_no_keys_float32", lengths_kv=(0, 24, 11), dtype=F32, reports=("R07",)),
    _packed("packed_no_keys_gaps", lengths_kv=(5, 0, 11), dtype=F32, **_GAPS["_gaps"]),
    _packed("packed_no_queries", lengths_q=(5, 0, 9), dtype=F32, reports=("R07",)),
    _packed("packed_last_is_empty", lengths_q=(5, 9, 0), lengths_kv=(24, 7, 0), dtype=F32),
    _packed("packed_all_empty", lengths_q=(0, 0, 0), lengths_kv=(0, 0, 0), dtype=F32),
    Case(
        "packed_one_query_or_none",
        3,
        9,
        3,
        1,
        5,
        lengths_q=(1, 0, 1),
        lengths_kv=(3, 0, 5),
        packed="both",
        band=_CAUSAL,
        reports=("R08",),
    ),
    Case(
        "packed_one_query_or_none_float32",
        3,
        9,
        3,
        1,
        5,
        64,
        64,
        F32,
        _CAUSAL_BR,
        lengths_q=(1, 0, 1),
        lengths_kv=(3, 0, 5),
        packed="both",
        reports=("R08",),
    ),
    Case(
        "packed_one_query",
        1,
        8,
        2,
        1,
        100,
        128,
        128,
        lengths_q=(1,),
        lengths_kv=(100,),
        packed="both",
        reports=("R52",),
    ),
    Case(
        "packed_one_query_each",
        3,
        8,
        2,
        1,
        40,
        32,
        32,
        F32,
        lengths_q=(1, 1, 1),
        lengths_kv=(40, 3, 17),
        packed="both",
        reports=("R52",),
    ),
    _self("packed_heads_8", (3, 7), heads=8, heads_kv=8, dtype=F32, reports=("R114",)),
    _self("packed_one_sequence", (19,), band=_CAUSAL, dtype=F32),
    _self("packed_two_queries", (2, 1), dtype=F32),
    # Room for longer sequences than there are.
    _packed("packed_allows_longer", tokens_q=30, tokens_kv=40, dtype=F32),
    # Other memory.
    _self("packed_t3hd", (5, 12), heads_kv=4, layout="packed_qkv"),
    _self(
        "packed_t3hd_gaps",
        (5, 12),
        heads_kv=4,
        layout="packed_qkv",
        gaps_q=(2, 1),
        gaps_kv=(2, 1),
        band=_CAUSAL,
        dtype=F32,
    ),
    _self("packed_th3d", (5, 12), heads_kv=4, layout="qkv_h3d", dtype=F16),
    _packed("packed_t2hd", layout="kv_packed"),
    _packed("packed_th2d", layout="kv_h2d", dtype=F32),
    _packed("packed_unaligned", layout="unaligned", dtype=F16, reports=("R18",)),
    _packed("packed_odd_rows", layout="odd_rows", dtype=F16, reports=("R18",)),
    _packed("packed_expanded_kv", layout="expanded_kv", dtype=F32),
    # With other features.
    _packed("packed_mixed_head_dim", head_dim=192, head_dim_v=128, reports=("R107",)),
    _self(
        "packed_mixed_head_dim_causal",
        (5, 12),
        head_dim=192,
        head_dim_v=128,
        band=_CAUSAL,
        dtype=F32,
        reports=("R107",),
    ),
    _packed("packed_negative_lse", logits="very_negative"),
    _packed("packed_negative_lse_gaps", logits="very_negative", dtype=F32, **_GAPS["_gaps"]),
    _packed("packed_sink", softmax=_SINK, dtype=F32),
    _packed("packed_sink_gaps", softmax=_SINK, **_GAPS["_gaps"]),
    _self(
        "packed_sink_head_dim_96",
        (2, 17),
        heads=4,
        heads_kv=1,
        head_dim=96,
        head_dim_v=96,
        softmax=_SINK,
        dtype=F32,
        reports=("R109",),
    ),
    _self(
        "packed_sink_head_dim_96_bfloat16",
        (2, 17),
        heads=4,
        heads_kv=1,
        head_dim=96,
        head_dim_v=96,
        softmax=_SINK,
        reports=("R109",),
    ),
    _packed(
        "packed_sink_no_keys", softmax=_SINK, lengths_kv=(0, 24, 11), dtype=F32, reports=("R111",)
    ),
    _packed("packed_sink_100", softmax=_SINK, sink=100.0, dtype=F32, reports=("R111",)),
    _packed("packed_off_by_one", softmax=Softmax.OFF_BY_ONE, dtype=F32),
    _packed("packed_softcap", softcap=1.0, dtype=F32),
    _packed("packed_alibi", alibi="standard", band=_CAUSAL_BR, dtype=F32),
    _self("packed_alibi_causal", (5, 12), alibi="standard", band=_CAUSAL),
    _packed("packed_alibi_slopes", alibi="head", dtype=F32),
    _packed("packed_dropout", dropout_p=0.25, dtype=F32),
    # One side dense.
    _packed("packed_q", packed="q", dtype=F32),
    _packed("packed_q_full_keys", packed="q", lengths_kv=None, dtype=F32),
    _packed("packed_q_causal_br_bfloat16", packed="q", band=_CAUSAL_BR),
    _packed("packed_q_gaps", packed="q", gaps_q=(3, 0, 7), dtype=F32),
    _packed("packed_kv", packed="kv", dtype=F32),
    _packed("packed_kv_full_queries", packed="kv", lengths_q=None, dtype=F32),
    _packed("packed_kv_causal_br_bfloat16", packed="kv", band=_CAUSAL_BR),
    _packed("packed_kv_gaps", packed="kv", gaps_kv=(3, 0, 7), dtype=F32),
    _packed("packed_kv_decode", packed="kv", tokens_q=1, lengths_q=None, dtype=F16),
)
