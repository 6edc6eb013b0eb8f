"""Dense sequences with lengths. What lies past a length never matters (R04)."""

from __future__ import annotations

from ...mask import Alignment, Band
from ..case import Case
from .small import F16, F32, self_attention, small

_BR = Alignment.BOTTOM_RIGHT
_CAUSAL, _CAUSAL_BR = Band.causal(), Band.causal(_BR)


def _bands() -> tuple[Case, ...]:
    """Every band, with lengths of one side or both; bottom-right is each sequence's own."""
    bands = {
        "": Band(),
        "_causal": _CAUSAL,
        "_causal_br": _CAUSAL_BR,
        "_window": Band(5, 0),
        "_window_br": Band(5, 2, _BR),
    }
    sides = {
        "q": {"lengths_q": (13, 20)},
        "kv": {"lengths_kv": (36, 17)},
        "both": {"lengths_q": (20, 7), "lengths_kv": (11, 30)},
    }
    reports = {"": ("R04", "R83"), "_causal_br": ("R36",)}
    return tuple(
        small(
            f"lengths_{side}{suffix}",
            band=band,
            dtype=F32,
            reports=reports.get(suffix, ()),
            **given,
        )
        for suffix, band in bands.items()
        for side, given in sides.items()
    )


LENGTHS = (
    *_bands(),
    small("lengths_bfloat16", lengths_q=(20, 7), lengths_kv=(11, 30), reports=("R04",)),
    small("lengths_float16_bshd", lengths_kv=(11, 30), dtype=F16, layout="bshd"),
    small("lengths_sbhd", lengths_kv=(11, 30), layout="sbhd", band=_CAUSAL),
    small("lengths_full", lengths_q=(20, 20), lengths_kv=(36, 36), dtype=F32),
    small("lengths_equal", tokens_q=36, lengths_q=(9, 30), lengths_kv=(9, 30), dtype=F32),
    # Lengths of 0 (R07).
    small("lengths_no_keys", lengths_kv=(0, 36), dtype=F32, reports=("R07",)),
    small("lengths_no_keys_bfloat16", lengths_kv=(36, 0), reports=("R07",)),
    small("lengths_no_keys_causal_br", lengths_kv=(0, 20), band=_CAUSAL_BR, dtype=F16),
    small("lengths_no_queries", lengths_q=(0, 20), dtype=F32),
    small("lengths_nothing", lengths_q=(0, 20), lengths_kv=(0, 36), dtype=F32),
    small("lengths_all_empty", lengths_q=(0, 0), lengths_kv=(0, 0), dtype=F32),
    small("lengths_of_one", lengths_q=(1, 20), lengths_kv=(1, 36), dtype=F32),
    # A static cache: far more room than tokens (R37).
    small(
        "lengths_static_cache",
        tokens_q=6,
        tokens_kv=32,
        lengths_q=(6, 4),
        lengths_kv=(6, 6),
        band=_CAUSAL,
        dtype=F32,
        reports=("R37",),
    ),
    small(
        "lengths_static_cache_float16",
        tokens_q=6,
        tokens_kv=32,
        lengths_kv=(6, 9),
        band=_CAUSAL_BR,
        dtype=F16,
        reports=("R37",),
    ),
    # Sequences with fewer keys than queries, whose first rows see nothing (R40).
    small(
        "lengths_few_keys",
        lengths_q=(20, 12),
        lengths_kv=(8, 12),
        band=_CAUSAL_BR,
        dtype=F32,
        reports=("R40", "R05"),
    ),
    small("lengths_decode", tokens_q=1, lengths_kv=(36, 5), reports=("R26",)),
    small("lengths_decode_float32", tokens_q=1, lengths_kv=(3, 36), band=_CAUSAL_BR, dtype=F32),
    small("lengths_two_queries", tokens_q=2, lengths_q=(2, 1), lengths_kv=(36, 5), dtype=F32),
    small("lengths_17_queries", tokens_q=17, lengths_q=(17, 16), lengths_kv=(33, 32), dtype=F32),
    small("lengths_negative_lse", lengths_q=(20, 7), lengths_kv=(11, 30), logits="very_negative"),
    small("lengths_negative_lse_float32", lengths_kv=(11, 36), logits="very_negative", dtype=F32),
    small(
        "lengths_negative_lse_bias",
        lengths_kv=(11, 36),
        bias="1hss",
        dtype=F32,
        bias_values="very_negative",
    ),
    # Tiles of 128 whose rest lies past a length, partly inside the tensor.
    Case(
        "lengths_tile",
        2,
        2,
        1,
        64,
        192,
        lengths_kv=(64, 130),
        logits="very_negative",
        reports=("R01",),
    ),
    Case(
        "lengths_tile_causal_br",
        2,
        2,
        1,
        70,
        192,
        lengths_q=(64, 70),
        lengths_kv=(192, 65),
        band=_CAUSAL_BR,
        logits="very_negative",
    ),
    self_attention(
        "lengths_packed_qkv", heads_kv=4, lengths_q=(36, 9), lengths_kv=(36, 9), layout="packed_qkv"
    ),
    small("lengths_kv_packed", lengths_kv=(30, 9), layout="kv_packed", dtype=F16),
    small("lengths_mixed_head_dim", lengths_kv=(30, 9), head_dim_v=16, dtype=F32),
    small("lengths_bias", lengths_q=(20, 7), lengths_kv=(11, 30), bias="bhss", dtype=F32),
    small("lengths_bias_1hss", lengths_q=(13, 20), lengths_kv=(11, 30), bias="1hss"),
    small("lengths_mask", lengths_kv=(11, 30), mask="b1ss", dtype=F32),
    self_attention(
        "lengths_alibi",
        lengths_q=(36, 20),
        lengths_kv=(36, 20),
        alibi="standard",
        band=_CAUSAL,
        dtype=F32,
    ),
    small(
        "lengths_alibi_br",
        lengths_q=(13, 20),
        lengths_kv=(36, 17),
        alibi="head",
        band=_CAUSAL_BR,
        dtype=F32,
    ),
)
