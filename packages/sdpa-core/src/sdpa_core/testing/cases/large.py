"""Many tiles and partial last ones, for GPUs."""

from __future__ import annotations

from ...dtypes import DType
from ...mask import Alignment, Band
from ...problem import Softmax
from ..case import Case

_F16, _BF16 = DType.FLOAT16, DType.BFLOAT16
_TOP_LEFT = Band.causal()
_BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)
_SINK = Softmax.LEARNABLE

LARGE = (
    Case("large_causal", 2, 4, 2, 2048, 2048, 128, 128, _BF16, _TOP_LEFT, layout="bshd"),
    Case("large_full_float16", 1, 4, 4, 2048, 2048, 64, 64, _F16),
    Case("large_odd", 2, 4, 2, 1000, 1531, 128, 128, _BF16, _BOTTOM_RIGHT),
    Case("large_head_dim_256", 1, 2, 2, 1024, 1024, 256, 256, _BF16, _TOP_LEFT),
    Case("large_head_dim_192_128", 1, 4, 4, 1024, 1024, 192, 128, _BF16, _TOP_LEFT),
    Case("large_negative_lse", 1, 2, 2, 704, 704, 128, 128, logits="very_negative"),
    Case("large_decode", 4, 32, 8, 1, 2048, 128, 128, _BF16),
    Case("large_window", 1, 2, 2, 1100, 1100, 64, 64, _BF16, Band(300, 0)),
    Case("large_bias", 1, 2, 2, 700, 900, 64, 64, _BF16, bias="1hss"),
    Case("large_mask", 2, 2, 2, 600, 700, 64, 64, _BF16, mask="b1ss"),
    Case(
        "large_lengths",
        2,
        2,
        1,
        600,
        1000,
        128,
        128,
        _BF16,
        _BOTTOM_RIGHT,
        lengths_q=(600, 333),
        lengths_kv=(801, 1000),
    ),
    Case("large_sink", 1, 4, 2, 700, 700, 64, 64, _BF16, _TOP_LEFT, softmax=_SINK),
    Case("large_softcap", 1, 2, 2, 700, 700, 64, 64, _BF16, _TOP_LEFT, softcap=5.0),
    Case("large_dropout", 1, 2, 2, 600, 700, 64, 64, _BF16, dropout_p=0.1),
    Case(
        "large_packed",
        3,
        4,
        2,
        900,
        900,
        128,
        128,
        _BF16,
        _TOP_LEFT,
        lengths_q=(900, 130, 517),
        lengths_kv=(900, 130, 517),
        packed="both",
        gaps_q=(28, 0, 3),
        gaps_kv=(28, 0, 3),
    ),
    Case(
        "large_packed_short",
        9,
        8,
        2,
        598,
        598,
        64,
        64,
        _BF16,
        Band(511, 0),
        lengths_q=(2, *(300,) * 8),
        lengths_kv=(2, *(300,) * 8),
        packed="both",
        softmax=_SINK,
        reports=("R109",),
    ),
    Case(
        "large_paged",
        3,
        8,
        2,
        1,
        1000,
        128,
        128,
        _BF16,
        _BOTTOM_RIGHT,
        page_size=16,
        lengths_kv=(1000, 999, 16),
        reports=("R63",),
    ),
    Case(
        "large_paged_packed_q",
        3,
        8,
        2,
        512,
        1024,
        128,
        128,
        _BF16,
        _BOTTOM_RIGHT,
        page_size=64,
        lengths_q=(512, 1, 77),
        lengths_kv=(1024, 700, 77),
        packed="q",
        reports=("R65",),
    ),
)
