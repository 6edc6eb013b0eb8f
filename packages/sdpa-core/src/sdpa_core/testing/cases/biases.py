"""Biases, masks and ALiBi."""

from __future__ import annotations

from typing import get_args

from ...mask import Alignment, Band
from ..case import Axes, Case
from .small import F16, F32, self_attention, small

_BR = Alignment.BOTTOM_RIGHT
_CAUSAL, _CAUSAL_BR = Band.causal(), Band.causal(_BR)

#: Reports about one way to repeat a bias or mask.
_OF_AXES = {"bhss": ("R47",), "111s": ("R50",), "b11s": ("R45",)}


def _axes() -> tuple[Case, ...]:
    """Every way to repeat a bias; float32 finds a row or a gradient in the wrong place."""
    return tuple(
        small(f"bias_{axes}_{dtype}", bias=axes, dtype=dtype, reports=_OF_AXES.get(axes, ()))
        for axes in get_args(Axes)
        for dtype in (F16, F32)
        if dtype is F32 or axes in _OF_AXES
    )


def _masks() -> tuple[Case, ...]:
    return tuple(
        small(f"mask_{axes}", mask=axes, dtype=F32, reports=("R05", *_OF_AXES.get(axes, ())))
        for axes in get_args(Axes)
    )


BIASES = (
    *_axes(),
    small("bias_bfloat16", bias="bhss"),
    # Each type of its own (R44).
    small("bias_float32_float16", bias="11ss", bias_dtype=F32, dtype=F16, reports=("R44",)),
    small("bias_float32_bfloat16", bias="bhss", bias_dtype=F32, reports=("R44",)),
    self_attention("bias_causal", bias="1hss", band=_CAUSAL, dtype=F32),
    self_attention("bias_causal_bfloat16", bias="bhss", band=_CAUSAL),
    small("bias_causal_br", bias="b1ss", band=_CAUSAL_BR, dtype=F32),
    self_attention("bias_window", bias="1hss", band=Band(5, 0), dtype=F32),
    small("bias_window_br", bias="1hss", band=Band(5, 2, _BR), dtype=F32),
    small("bias_frozen", bias="1hss", bias_grad=False, reports=("R49",)),
    small("bias_frozen_111s", bias="111s", bias_grad=False, dtype=F16),
    small("bias_frozen_mixed_head_dim", bias="bhss", bias_grad=False, head_dim_v=64),
    # S that is no multiple of 64, one sequence (R51).
    Case("bias_one_sequence", 1, 2, 2, 50, 70, 32, 32, bias="1hss", reports=("R51",)),
    small("bias_hides", bias="bhss", bias_values="hides", dtype=F32, reports=("R05",)),
    small("bias_hides_float16", bias="11ss", bias_values="hides", dtype=F16, reports=("R05",)),
    small("bias_hides_float32_bfloat16", bias="b1ss", bias_values="hides", bias_dtype=F32),
    small("bias_lowest", bias="bhss", bias_values="lowest", dtype=F32, reports=("R05",)),
    small("bias_lowest_float16", bias="bhss", bias_values="lowest", dtype=F16, reports=("R05",)),
    small("bias_negative_lse", bias="bhss", bias_values="very_negative", dtype=F32),
    small("bias_negative_lse_bfloat16", bias="1hss", bias_values="very_negative"),
    self_attention(
        "bias_negative_lse_tile", tokens_q=64, tokens_kv=64, bias="1hss", logits="very_negative"
    ),
    small("bias_decode", tokens_q=1, bias="bhss", dtype=F32),
    small("bias_decode_bh1s", tokens_q=1, bias="bh1s"),
    small("bias_two_queries", tokens_q=2, bias="1hss", dtype=F32),
    small("bias_17_queries", tokens_q=17, bias="1hss", dtype=F32),
    small("bias_bshd", bias="bhss", layout="bshd", dtype=F16),
    small("bias_transposed", bias="1hss", bias_layout="transposed", dtype=F32, reports=("R21",)),
    small("bias_transposed_float16", bias="bhss", bias_layout="transposed", dtype=F16),
    small("bias_padded_rows", bias="bhss", bias_layout="padded_rows", reports=("R21",)),
    small("bias_empty_keys", bias="1hss", tokens_kv=0, dtype=F32),
)

MASKS = (
    *_masks(),
    small("mask_bfloat16", mask="bhss", reports=("R05",)),
    small("mask_float16_bshd", mask="b1ss", dtype=F16, layout="bshd"),
    self_attention("mask_causal", mask="b1ss", band=_CAUSAL, dtype=F32),
    small("mask_causal_br", mask="11ss", band=_CAUSAL_BR, dtype=F32),
    self_attention("mask_window", mask="1hss", band=Band(6, 0), dtype=F32),
    small("mask_decode", tokens_q=1, mask="b11s", dtype=F32),
    small("mask_mixed_head_dim", mask="b1ss", head_dim_v=64, dtype=F16, reports=("R54",)),
    # What FA's and torch's kernels do with masked tiles and an LSE below -88.7 (R01).
    Case("mask_tile", 1, 2, 2, 64, 64, mask="b1ss", logits="very_negative", reports=("R01",)),
    Case("mask_tile_192", 1, 1, 1, 40, 192, mask="11ss", logits="very_negative", reports=("R01",)),
    small("mask_negative_lse", mask="bhss", logits="very_negative", dtype=F32),
)

ALIBI = (
    self_attention("alibi", alibi="standard", band=_CAUSAL),
    self_attention("alibi_float32", alibi="standard", band=_CAUSAL, dtype=F32),
    self_attention(
        "alibi_three_heads", heads=3, heads_kv=1, alibi="standard", band=_CAUSAL, dtype=F32
    ),
    small("alibi_causal_br", alibi="standard", band=_CAUSAL_BR, dtype=F32),
    small("alibi_not_causal", alibi="standard", dtype=F32),
    small(
        "alibi_few_keys", alibi="standard", tokens_q=36, tokens_kv=20, band=_CAUSAL_BR, dtype=F32
    ),
    self_attention("alibi_window", alibi="standard", band=Band(6, 0), dtype=F32),
    small("alibi_decode", tokens_q=1, alibi="standard", band=_CAUSAL_BR, dtype=F32),
    self_attention("alibi_head", alibi="head", band=_CAUSAL, dtype=F32),
    self_attention("alibi_head_bfloat16", alibi="head", band=_CAUSAL),
    small("alibi_batch_head", alibi="batch_head", dtype=F32),
    small("alibi_batch_head_causal_br", alibi="batch_head", band=_CAUSAL_BR, dtype=F32),
    small("alibi_head_bias", alibi="head", bias="1hss", bias_grad=False, dtype=F32),
)
