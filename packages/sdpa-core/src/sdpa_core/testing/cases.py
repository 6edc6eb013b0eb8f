"""Named attention problems with data: what every backend is tried on.

Sizes are small, so that all of ``CASES`` run in seconds on a CPU; ``LARGE_CASES`` are for GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from ..dtypes import DType
from ..mask import Alignment, Band
from ..validate import default_scale
from .reference import Array, visible_pairs
from .rounding import round_to

#: How query, key and value lie in memory.
#: ``bhsd``: row-major. ``bshd``: ``[B, S, H, D]`` row-major. ``packed_qkv``: three views of one
#: ``[B, S, 3, H, D]``. ``unaligned``: row-major, one element past an aligned address.
#: ``expanded_kv``: key and value have one head in memory, repeated with stride 0.
Layout = Literal["bhsd", "bshd", "packed_qkv", "unaligned", "expanded_kv"]

#: What the logits look like.
#: ``normal``: normal deviates. ``very_negative``: all about -120, so that each LSE is below -88.7
#: and ``exp(-LSE)`` overflows in float32. ``large_positive``: all about 120, so that ``exp(S)``
#: does. ``zero_query``: all 0, so that the output is the mean of the visible values.
Logits = Literal["normal", "very_negative", "large_positive", "zero_query"]

_LARGE = 512
_LARGE_LOGIT = 120.0


class Inputs(NamedTuple):
    """Operands in float64, each number one of the case's element type.

    Attributes:
        query: ``[B, Hq, Sq, D]``.
        key: ``[B, Hkv, Skv, D]``.
        value: ``[B, Hkv, Skv, Dv]``.
        grad_output: ``[B, Hq, Sq, Dv]``.
    """

    query: Array
    key: Array
    value: Array
    grad_output: Array


@dataclass(frozen=True)
class Case:
    """One attention problem.

    Attributes:
        name: unique, an identifier.
        batch: sequences, B.
        heads, heads_kv: query heads Hq and key heads Hkv.
        tokens_q, tokens_kv: lengths Sq and Skv, in tokens.
        head_dim, head_dim_v: lengths D and Dv of a query or key, and of a value.
        dtype: element type of the operands.
        band: which keys a query sees.
        scale: factor of the logits; None: ``1 / sqrt(D)``.
        layout: see ``Layout``.
        logits: see ``Logits``.
        seed: of the data, together with the name.
    """

    name: str
    batch: int = 2
    heads: int = 2
    heads_kv: int = 2
    tokens_q: int = 48
    tokens_kv: int = 48
    head_dim: int = 64
    head_dim_v: int = 64
    dtype: DType = DType.BFLOAT16
    band: Band = Band()
    scale: float | None = None
    layout: Layout = "bhsd"
    logits: Logits = "normal"
    seed: int = 0

    def __post_init__(self) -> None:
        same = (
            (self.heads, self.tokens_q, self.head_dim),
            (self.heads_kv, self.tokens_kv, self.head_dim_v),
        )
        if self.layout == "packed_qkv" and same[0] != same[1]:
            raise ValueError(f"{self.name}: packed_qkv needs equal heads, tokens and head_dim")
        if self.scale == 0 and self.logits in {"very_negative", "large_positive"}:
            raise ValueError(f"{self.name}: logits {self.logits} need a scale other than 0")

    @cached_property
    def tags(self) -> frozenset[str]:
        """What is special about the case, to choose cases by: ``"causal" in case.tags``.

        ``slice``: head dims that GPU backends take, multiples of 8 and at most 256. The others:
        ``batch_of_one``, ``causal``, ``cross`` (Sq != Skv), ``decode`` (Sq = 1), ``empty``,
        ``expanded`` (stride 0), ``gqa``, ``large``, ``mixed_head_dim`` (D != Dv),
        ``negative_lse`` (below -88.7), ``scale`` (given), ``strided``, ``unaligned``,
        ``unseen_rows`` (queries that see no key).
        """
        visible = visible_pairs(self.band, self.tokens_q, self.tokens_kv)
        dims = (self.head_dim, self.head_dim_v)
        facts = {
            "slice": all(d % 8 == 0 and d <= 256 for d in dims),
            "batch_of_one": self.batch == 1,
            "causal": self.band.left is None and self.band.right == 0,
            "cross": self.tokens_q != self.tokens_kv,
            "decode": self.tokens_q == 1,
            "empty": 0 in (self.batch, self.tokens_q, self.tokens_kv),
            "expanded": self.layout == "expanded_kv",
            "gqa": self.heads != self.heads_kv,
            "large": max(self.tokens_q, self.tokens_kv) >= _LARGE,
            "mixed_head_dim": self.head_dim != self.head_dim_v,
            "negative_lse": self.logits == "very_negative",
            "scale": self.scale is not None,
            "strided": self.layout not in {"bhsd", "unaligned"},
            "unaligned": self.layout == "unaligned",
            "unseen_rows": not visible.any(axis=1).all(),
        }
        return frozenset(name for name, holds in facts.items() if holds)

    @property
    def effective_scale(self) -> float:
        return default_scale(self.head_dim) if self.scale is None else self.scale

    @property
    def query_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.tokens_q, self.head_dim

    @property
    def key_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads_kv, self.tokens_kv, self.head_dim

    @property
    def value_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads_kv, self.tokens_kv, self.head_dim_v

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.tokens_q, self.head_dim_v

    def arrays(self) -> Inputs:
        """The operands: the same at every call; sequences and heads differ from each other."""
        rng = np.random.default_rng([self.seed, *self.name.encode()])
        shapes = (self.query_shape, self.key_shape, self.value_shape, self.output_shape)
        query, key, value, grad_output = (rng.standard_normal(shape) for shape in shapes)
        if self.logits == "zero_query":
            query = np.zeros_like(query)
        elif self.logits != "normal":
            # D products of size a * a, scaled, make the logit.
            a = (_LARGE_LOGIT / (abs(self.effective_scale) * self.head_dim)) ** 0.5
            sign = np.copysign(1.0, self.effective_scale)
            sign = -sign if self.logits == "very_negative" else sign
            query = a * (1 + 0.01 * query)
            key = a * (sign + 0.01 * key)
        if self.layout == "expanded_kv":
            key, value = (np.broadcast_to(x[:, :1], x.shape) for x in (key, value))
        return Inputs(*(round_to(x, self.dtype) for x in (query, key, value, grad_output)))


_F16, _BF16, _F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
_TOP_LEFT = Band.causal()
_BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)


def _types_and_layouts() -> tuple[Case, ...]:
    layouts: tuple[Layout, ...] = ("bhsd", "bshd")
    return tuple(
        Case(f"{dtype}_{layout}", dtype=dtype, layout=layout)
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
    Case("gqa_2", heads=4, heads_kv=2),
    Case("gqa_3_causal_float16", heads=6, heads_kv=2, band=_TOP_LEFT, dtype=_F16),
    Case("gqa_4_bshd_float32", heads=8, heads_kv=2, layout="bshd", dtype=_F32),
    Case("gqa_2_causal_br_bshd", 2, 4, 2, 24, 80, band=_BOTTOM_RIGHT, layout="bshd"),
    Case("mqa", heads=4, heads_kv=1, band=_TOP_LEFT),
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
    Case("head_dim_192_128", head_dim=192, head_dim_v=128),
    Case("head_dim_192_128_causal", 2, 4, 2, 130, 130, 192, 128, _BF16, _TOP_LEFT),
    Case("head_dim_128_64", head_dim=128, head_dim_v=64, layout="bshd"),
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
    Case("one_key_causal_br", tokens_q=40, tokens_kv=1, band=_BOTTOM_RIGHT),
    Case("one_token", tokens_q=1, tokens_kv=1),
    Case("one_token_causal_float32", tokens_q=1, tokens_kv=1, band=_TOP_LEFT, dtype=_F32),
)

_EMPTY = (
    Case("empty_batch", batch=0),
    Case("empty_queries", tokens_q=0, heads=4),
    Case("empty_queries_causal_br", tokens_q=0, band=_BOTTOM_RIGHT, layout="bshd"),
    Case("empty_keys", tokens_kv=0, heads=4),
    Case("empty_keys_causal_float32", tokens_kv=0, band=_TOP_LEFT, dtype=_F32),
    Case("empty_tokens", tokens_q=0, tokens_kv=0),
)

_MEMORY = (
    Case("packed_qkv", layout="packed_qkv"),
    Case("packed_qkv_causal_float16", layout="packed_qkv", band=_TOP_LEFT, dtype=_F16),
    Case("packed_qkv_float32", layout="packed_qkv", dtype=_F32),
    Case("unaligned", layout="unaligned"),
    Case("unaligned_gqa_float16", layout="unaligned", heads=4, heads_kv=1, dtype=_F16),
    Case("expanded_kv", layout="expanded_kv", heads=4, heads_kv=4),
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
        Case(f"key_tiles_{s}", heads=1, heads_kv=1, tokens_q=s, tokens_kv=s, logits="very_negative")
        for s in lengths
    )
    others = (
        Case("key_tiles_64_float16", tokens_q=64, tokens_kv=64, dtype=_F16),
        Case("key_tiles_64_float32", tokens_q=64, tokens_kv=64, dtype=_F32),
        Case("key_tiles_64_causal", tokens_q=64, tokens_kv=64, band=_TOP_LEFT),
        Case("key_tiles_64_unit_values", tokens_q=64, tokens_kv=64, scale=_LARGE_LOGIT / 64),
        Case("key_tiles_64_few_queries", tokens_q=32, tokens_kv=64),
        Case("key_tiles_192_few_keys", 2, 2, 2, 200, 192, 128, 128),
        Case("key_tiles_192_gqa", 2, 4, 2, 192, 192, 128, 128, layout="bshd"),
        Case("key_tiles_192_causal_br", tokens_q=100, tokens_kv=192, band=_BOTTOM_RIGHT),
        Case("key_tiles_64_mixed_head_dim", 2, 2, 2, 64, 64, 192, 128),
    )
    return square + tuple(replace(case, logits="very_negative") for case in others)


#: Everything the dense core must do, each case for one reason.
CASES = (
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

#: Many tiles and partial last ones, for GPUs.
LARGE_CASES = (
    Case("large_causal", 2, 4, 2, 2048, 2048, 128, 128, _BF16, _TOP_LEFT, layout="bshd"),
    Case("large_full_float16", 1, 4, 4, 2048, 2048, 64, 64, _F16),
    Case("large_odd", 2, 4, 2, 1000, 1531, 128, 128, _BF16, _BOTTOM_RIGHT),
    Case("large_head_dim_256", 1, 2, 2, 1024, 1024, 256, 256, _BF16, _TOP_LEFT),
    Case("large_head_dim_192_128", 1, 4, 4, 1024, 1024, 192, 128, _BF16, _TOP_LEFT),
    Case("large_negative_lse", 1, 2, 2, 704, 704, 128, 128, logits="very_negative"),
    Case("large_decode", 4, 32, 8, 1, 2048, 128, 128, _BF16),
)
