"""Dense operands and causal masks: types, layouts, head dims, scales, lengths of tiles."""

from __future__ import annotations

from dataclasses import replace

from ...dtypes import DType
from ...mask import Alignment, Band
from ..case import LARGE_LOGIT, Case, Layout

_F16, _BF16, _F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
_TOP_LEFT = Band.causal()
_BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)


def _types_and_layouts() -> tuple[Case, ...]:
    layouts: tuple[Layout, ...] = ("bhsd", "bshd")
    return tuple(
        Case(f"{dtype}_{layout}", dtype=dtype, layout=layout, reports=("R16", "R26"))
        for dtype in (_F16, _BF16, _F32)
        for layout in layouts
    )


def _masks() -> tuple[Case, ...]:
    """Every band with equal lengths, fewer and more queries than keys.

    float32 goes with bfloat16: its tolerance is tight, and no rounding hides a misplaced diagonal.
    """
    lengths = {"": (48, 48), "_few_queries": (24, 80), "_few_keys": (80, 24)}
    bands = {"full": Band(), "causal": _TOP_LEFT, "causal_br": _BOTTOM_RIGHT}
    return tuple(
        Case(f"{mask}{suffix}_{dtype}", tokens_q=sq, tokens_kv=skv, band=band, dtype=dtype)
        for mask, band in bands.items()
        for suffix, (sq, skv) in lengths.items()
        for dtype in (_BF16, _F32)
        if mask != "full" or suffix
    )


_HEADS = (
    Case("gqa_2", heads=4, heads_kv=2, reports=("R55",)),
    Case("gqa_3_causal_float16", heads=6, heads_kv=2, band=_TOP_LEFT, dtype=_F16),
    Case("gqa_4_bshd_float32", heads=8, heads_kv=2, layout="bshd", dtype=_F32),
    Case("gqa_2_causal_br_bshd", 2, 4, 2, 24, 80, band=_BOTTOM_RIGHT, layout="bshd"),
    Case("mqa", heads=4, heads_kv=1, band=_TOP_LEFT, reports=("R55",)),
    Case("mqa_bshd_float16", heads=4, heads_kv=1, layout="bshd", dtype=_F16),
    Case("one_head", heads=1, heads_kv=1, band=_TOP_LEFT),
    Case("batch_of_one", batch=1, heads=4, heads_kv=2),
    Case("batch_of_one_bshd_float16", batch=1, dtype=_F16, layout="bshd", band=_TOP_LEFT),
)

_HEAD_DIMS = (
    Case("head_dim_8", head_dim=8, head_dim_v=8),
    Case("head_dim_8_bshd_float16", head_dim=8, head_dim_v=8, dtype=_F16, layout="bshd"),
    Case("head_dim_72", head_dim=72, head_dim_v=72, band=_TOP_LEFT),
    Case("head_dim_96", head_dim=96, head_dim_v=96, dtype=_F16),
    Case("head_dim_128", head_dim=128, head_dim_v=128),
    Case("head_dim_128_causal", head_dim=128, head_dim_v=128, band=_TOP_LEFT, layout="bshd"),
    Case("head_dim_256", head_dim=256, head_dim_v=256),
    Case("head_dim_256_causal_float16", 2, 2, 1, 48, 80, 256, 256, _F16, _TOP_LEFT),
    Case("head_dim_192_128", head_dim=192, head_dim_v=128, reports=("R54",)),
    Case("head_dim_192_128_causal", 2, 4, 2, 130, 130, 192, 128, _BF16, _TOP_LEFT),
    Case("head_dim_128_64", head_dim=128, head_dim_v=64, layout="bshd", reports=("R22",)),
    Case("head_dim_256_128", head_dim=256, head_dim_v=128, dtype=_F16),
    Case("head_dim_64_128", head_dim=64, head_dim_v=128, band=_TOP_LEFT),
    Case("head_dim_64_128_float32", 2, 4, 2, 24, 40, 64, 128, _F32),
    # Not in the slice: a GPU backend pads or refuses, and says so.
    Case("head_dim_20", head_dim=20, head_dim_v=20),
)

_SCALES = (
    Case("scale_half_float32", scale=0.5, dtype=_F32),
    Case("scale_half", scale=0.5, band=_TOP_LEFT),
    Case("scale_zero", scale=0.0),
    Case("scale_zero_causal_float32", scale=0.0, band=_TOP_LEFT, dtype=_F32),
    Case("scale_negative", scale=-0.3),
    Case("scale_negative_float32", scale=-0.3, dtype=_F32),
)

_LOGITS = (
    Case("zero_query", logits="zero_query", tokens_q=40, tokens_kv=100),
    Case("zero_query_causal_float32", logits="zero_query", band=_TOP_LEFT, dtype=_F32),
    Case("large_logits", logits="large_positive"),
    Case("large_logits_float16", logits="large_positive", dtype=_F16, band=_TOP_LEFT),
    Case("large_logits_float32", logits="large_positive", dtype=_F32),
)

_DECODE = (
    Case("decode", tokens_q=1, tokens_kv=77),
    Case("decode_gqa", 2, 8, 2, 1, 200, 128, 128, _BF16, _BOTTOM_RIGHT, layout="bshd"),
    Case("decode_mqa_float16", 2, 4, 1, 1, 64, dtype=_F16),
    # Top-left: the only query sees the first key alone.
    Case("decode_top_left", tokens_q=1, tokens_kv=16, band=_TOP_LEFT),
    Case("decode_float32", tokens_q=1, tokens_kv=77, dtype=_F32),
    Case("one_key", tokens_q=40, tokens_kv=1),
    Case("one_key_causal_br", tokens_q=40, tokens_kv=1, band=_BOTTOM_RIGHT, reports=("R40",)),
    Case("one_token", tokens_q=1, tokens_kv=1),
    Case("one_token_causal_float32", tokens_q=1, tokens_kv=1, band=_TOP_LEFT, dtype=_F32),
)

_EMPTY = (
    Case("empty_batch", batch=0, reports=("R10",)),
    Case("empty_queries", tokens_q=0, heads=4, reports=("R10",)),
    Case("empty_queries_causal_br", tokens_q=0, band=_BOTTOM_RIGHT, layout="bshd"),
    Case("empty_keys", tokens_kv=0, heads=4, reports=("R10",)),
    Case("empty_keys_causal_float32", tokens_kv=0, band=_TOP_LEFT, dtype=_F32),
    Case("empty_tokens", tokens_q=0, tokens_kv=0),
)

_MEMORY = (
    Case("packed_qkv", layout="packed_qkv", reports=("R20",)),
    Case("packed_qkv_causal_float16", layout="packed_qkv", band=_TOP_LEFT, dtype=_F16),
    Case("packed_qkv_float32", layout="packed_qkv", dtype=_F32),
    Case("unaligned", layout="unaligned", reports=("R18",)),
    Case("unaligned_gqa_float16", layout="unaligned", heads=4, heads_kv=1, dtype=_F16),
    Case("expanded_kv", layout="expanded_kv", heads=4, heads_kv=4, reports=("R15",)),
    Case("expanded_kv_gqa", layout="expanded_kv", heads=4, heads_kv=2, band=_TOP_LEFT),
)


def _key_tiles() -> tuple[Case, ...]:
    """Lengths around multiples of 32, 64 and 128, with logits that show what a tile's rest holds.

    cuDNN 9.19 on compute capability 9.0 fills dQ with NaN where ``Skv % 128 == 64`` and neither
    a band nor lengths mask the rest of the last tile (pytorch issue 196678, cudnn-frontend
    issue 160).
    """
    lengths = (33, 63, 64, 65, 100, 127, 128, 129, 192, 255)
    square = tuple(
        Case(
            f"key_tiles_{s}",
            heads=1,
            heads_kv=1,
            tokens_q=s,
            tokens_kv=s,
            logits="very_negative",
            reports=("R01", "R03"),
        )
        for s in lengths
    )
    others = (
        Case("key_tiles_64_float16", tokens_q=64, tokens_kv=64, dtype=_F16),
        Case("key_tiles_64_float32", tokens_q=64, tokens_kv=64, dtype=_F32),
        Case("key_tiles_64_causal", tokens_q=64, tokens_kv=64, band=_TOP_LEFT),
        Case(
            "key_tiles_64_unit_values",
            tokens_q=64,
            tokens_kv=64,
            scale=LARGE_LOGIT / 64,
            reports=("R01",),
        ),
        Case("key_tiles_64_few_queries", tokens_q=32, tokens_kv=64),
        Case("key_tiles_192_few_keys", 2, 2, 2, 200, 192, 128, 128),
        Case("key_tiles_192_gqa", 2, 4, 2, 192, 192, 128, 128, layout="bshd"),
        Case("key_tiles_192_causal_br", tokens_q=100, tokens_kv=192, band=_BOTTOM_RIGHT),
        Case("key_tiles_64_mixed_head_dim", 2, 2, 2, 64, 64, 192, 128),
    )
    return square + tuple(replace(case, logits="very_negative") for case in others)


DENSE = (
    *_types_and_layouts(),
    *_masks(),
    *_HEADS,
    *_HEAD_DIMS,
    *_SCALES,
    *_LOGITS,
    *_DECODE,
    *_EMPTY,
    *_MEMORY,
    *_key_tiles(),
)
