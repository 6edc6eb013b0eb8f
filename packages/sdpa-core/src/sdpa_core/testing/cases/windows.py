"""Sliding windows."""

from __future__ import annotations

from ...mask import Alignment, Band
from ..case import Case
from .small import F16, F32, self_attention, small

_BR = Alignment.BOTTOM_RIGHT


def _lengths() -> tuple[Case, ...]:
    """Windows with equal lengths, fewer and more queries than keys.

    float32 finds a bound that is off by one.
    """
    lengths = {"": (36, 36), "_few_queries": (20, 36), "_few_keys": (36, 20)}
    bands = {
        "window_5_0": Band(5, 0),
        "window_5_3": Band(5, 3),
        "window_5_0_br": Band(5, 0, _BR),
        "window_4_2_br": Band(4, 2, _BR),
    }
    return tuple(
        small(f"{name}{suffix}", tokens_q=sq, tokens_kv=skv, band=band, dtype=F32)
        for name, band in bands.items()
        for suffix, (sq, skv) in lengths.items()
    )


WINDOWS = (
    *_lengths(),
    self_attention("window_5_0_bfloat16", band=Band(5, 0)),
    self_attention("window_5_3_float16", band=Band(5, 3), dtype=F16),
    small("window_5_0_br_bfloat16", band=Band(5, 0, _BR), layout="bshd"),
    # A left bound alone is not causal (R32), and a right one alone is neither (R34).
    self_attention("window_left_only", band=Band(16, None), dtype=F32, reports=("R32",)),
    self_attention("window_16_0", band=Band(16, 0), dtype=F32, reports=("R32",)),
    small("window_right_only", band=Band(None, 3), dtype=F32, reports=("R34",)),
    Case("window_none_cross", 2, 2, 2, 8, 12, dtype=F32, reports=("R34",)),
    self_attention("window_of_itself", band=Band(0, 0), dtype=F32),
    self_attention("window_wider_than_all", band=Band(100, 100), dtype=F32),
    small("window_decode", tokens_q=1, band=Band(7, 0, _BR), dtype=F32),
    small("window_negative_lse", band=Band(5, 0, _BR), logits="very_negative"),
    small("window_negative_lse_float32", band=Band(5, 0), logits="very_negative", dtype=F32),
    self_attention("window_tiles", tokens_q=130, tokens_kv=130, heads=2, band=Band(65, 0)),
    self_attention("window_packed_qkv", band=Band(5, 0), heads_kv=4, layout="packed_qkv"),
)
