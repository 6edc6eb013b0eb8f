"""The problems of the support matrix: every feature alone, and the combinations users meet.

A problem that trains is asked in both directions, another one only forward. Names are what the
page shows, so they are written for readers.
"""

from __future__ import annotations

from typing import Any

from sdpa_core import Alignment, AttentionProblem, Band, DType, TensorSpec
from sdpa_core.layout import dense_in_order
from sdpa_core.logits import ScoreMod
from sdpa_core.paged import Paged
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed, packed_spec
from sdpa_core.score_mod import Trace

BF16, FP16, FP32 = DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32
CAUSAL = Band.causal()
BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)
WINDOW = Band(64, 0)
TWO_SIDED = Band(64, 32)
WINDOW_BR = Band(64, 0, Alignment.BOTTOM_RIGHT)
TWO_SIDED_BR = Band(64, 32, Alignment.BOTTOM_RIGHT)
#: Both sides of `packed` and `lengths`.
BOTH = "q kv"
LEARNABLE, OFF_BY_ONE = Softmax.LEARNABLE, Softmax.OFF_BY_ONE

#: Axes of (batch, heads, tokens, head_dim), outermost first in memory.
_ORDERS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}


def problem(
    *,
    batch: int = 2,
    heads: int = 8,
    heads_kv: int | None = None,
    s: int = 256,
    sq: int | None = None,
    skv: int | None = None,
    d: int = 128,
    dv: int | None = None,
    dtype: DType = BF16,
    layout: str = "bhsd",
    bias: str | None = None,
    bias_dtype: DType | None = None,
    slopes: str | None = None,
    packed: str = "",
    gaps: bool = False,
    page: int | None = None,
    lengths: str = "",
    training: bool = True,
    **features: Any,
) -> AttentionProblem:
    """A problem; what is not said is bfloat16 [2, 8, 256, 128], training, nothing else.

    Args:
        bias, slopes: which of the axes are whole, the others are 1: ``bhst``, ``1hst``, ``111t``.
        packed: the sides that are: ``q``, ``kv``, ``BOTH``; fewer rows than full sequences have.
        page: tokens of a page; key and value are then pools.
        lengths: the dense sides that come with lengths, spelled like ``packed``.
        features: further arguments of ``AttentionProblem.of``.
    """
    heads_kv, sq, skv, dv = heads_kv or heads, sq or s, skv or s, dv or d

    def operand(count: int, length: int, width: int, packed: bool) -> TensorSpec:
        if packed:
            rows = (count * width, width, 1)
            shape = (_rows(batch, length), count, width)
            return packed_spec(shape, rows, dtype, batch=batch, max_tokens=length)
        shape = (batch, count, length, width)
        return TensorSpec(shape, dense_in_order(shape, _ORDERS[layout]), dtype)

    def broadcast(axes: str, of: DType) -> TensorSpec:
        whole = {"b": batch, "h": heads, "s": sq, "t": skv, "1": 1}
        return TensorSpec.dense([whole[axis] for axis in axes], of)

    sides = packed.split()
    key = operand(heads_kv, skv, d, "kv" in sides)
    value = operand(heads_kv, skv, dv, "kv" in sides)
    if page is not None:
        features["paged"], key, value = _pools(batch, heads_kv, skv, d, dv, dtype, page)
    return AttentionProblem.of(
        operand(heads, sq, d, "q" in sides),
        key,
        value,
        bias=broadcast(bias, bias_dtype or dtype) if bias else None,
        alibi_slopes=broadcast(slopes, FP32) if slopes else None,
        packed_q=Packed(_rows(batch, sq), gaps) if "q" in sides else None,
        packed_kv=Packed(_rows(batch, skv), gaps) if "kv" in sides else None,
        seq_lens_q="q" in lengths.split(),
        seq_lens_kv="kv" in lengths.split(),
        training=training and page is None,
        **features,
    )


def _rows(batch: int, longest: int) -> int:
    """Rows of a packed operand: the longest sequence, and shorter others."""
    return longest + (batch - 1) * (longest * 9 // 16)


def _pools(
    batch: int, heads: int, tokens: int, d: int, dv: int, dtype: DType, page: int
) -> tuple[Paged, TensorSpec, TensorSpec]:
    pages = -(-tokens // page)
    table = TensorSpec.dense((batch, pages), DType.INT32)
    key, value = (TensorSpec.dense((batch * pages, heads, page, width), dtype) for width in (d, dv))
    return Paged(table, table, tokens), key, value


def _relative() -> ScoreMod:
    """Keys far away weigh less: what is computed from positions alone."""
    trace = Trace()
    return ScoreMod(trace.expression(trace.score - 0.01 * (trace.query - trace.key)))


def _scaled() -> ScoreMod:
    """A factor for each head, read from a tensor, and one that is given at launch."""
    trace = Trace()
    factor = trace.tensor(0, FP32) * trace.scalar(0)
    spec = TensorSpec.dense((1, 8, 1, 1), FP32)
    return ScoreMod(trace.expression(trace.score * factor), tensors=(spec,), scalars=1)


RELATIVE, SCALED = _relative(), _scaled()

_DTYPES_AND_LAYOUTS = {
    "bfloat16": problem(),
    "float16": problem(dtype=FP16),
    "layout bshd": problem(layout="bshd"),
    "layout sbhd": problem(layout="sbhd", dtype=FP16),
    "grouped heads 8:2": problem(heads_kv=2, layout="bshd"),
    "multi-query 8:1": problem(heads_kv=1),
    "1000 tokens": problem(s=1000),
    "17 and 333 tokens": problem(sq=17, skv=333),
    "half empty key tile: 192 tokens": problem(s=192),
    "one token": problem(s=1),
    "one token, sink": problem(s=1, softmax=LEARNABLE, sink_grad=True),
    "one key": problem(sq=64, skv=1),
    "no further result": problem(training=False),
}

_HEAD_DIMS = {
    **{f"head_dim {d}": problem(d=d) for d in (8, 16, 32, 64, 72, 80, 96, 136, 160, 192, 256)},
    "head_dim 12": problem(d=12),
    "head_dim 192, value 128": problem(d=192, dv=128, band=CAUSAL),
    "head_dim 128, value 64": problem(d=128, dv=64),
    "head_dim 64, value 128": problem(d=64, dv=128),
    "head_dim 128, value 192": problem(d=128, dv=192),
    "head_dim 256, value 128": problem(d=256, dv=128),
    "head_dim 192, value 128, bias": problem(d=192, dv=128, bias="11st"),
    "head_dim 192, value 128, dropout": problem(d=192, dv=128, dropout_p=0.1),
    "head_dim 256, causal": problem(d=256, band=CAUSAL),
    "head_dim 256, window": problem(d=256, band=WINDOW),
    "head_dim 256, lengths": problem(d=256, lengths=BOTH),
    "head_dim 256, bias": problem(d=256, bias="11st"),
    "head_dim 256, dropout": problem(d=256, dropout_p=0.1),
    "head_dim 256, sink": problem(d=256, softmax=LEARNABLE, sink_grad=True),
    "head_dim 256, deterministic": problem(d=256, deterministic=True),
    "head_dim 256, packed": problem(d=256, packed=BOTH),
    "head_dim 512": problem(d=512),
    "head_dim 512, causal": problem(d=512, band=CAUSAL),
    "head_dim 1024": problem(d=1024, training=False),
    "head_dim 576, value 512": problem(d=576, dv=512, training=False),
    "head_dim 576, value 512, one query": problem(d=576, dv=512, sq=1, training=False),
}

_MASKS = {
    "causal": problem(band=CAUSAL),
    "causal, more keys": problem(sq=96, band=CAUSAL),
    "causal, more queries": problem(sq=300, skv=200, band=CAUSAL),
    "bottom-right, more keys": problem(sq=96, band=BOTTOM_RIGHT),
    "bottom-right, more queries": problem(sq=300, skv=200, band=BOTTOM_RIGHT),
    "bottom-right, lengths": problem(band=BOTTOM_RIGHT, lengths=BOTH),
    "window": problem(band=WINDOW),
    "window, more keys": problem(sq=96, band=WINDOW_BR),
    "window, more queries": problem(sq=300, skv=200, band=WINDOW),
    "window, bottom-right, more queries": problem(sq=300, skv=200, band=WINDOW_BR),
    "two-sided window": problem(band=TWO_SIDED),
    "two-sided window, more queries": problem(sq=300, skv=200, band=TWO_SIDED),
    "two-sided window, bottom-right, more keys": problem(sq=96, skv=512, band=TWO_SIDED_BR),
    "two-sided window, 2048 keys": problem(s=2048, heads=2, band=TWO_SIDED),
    "only a right bound": problem(band=Band(None, 32)),
    "only a left bound": problem(band=Band(64, None)),
}

_LENGTHS = {
    "lengths": problem(lengths=BOTH),
    "lengths of keys only": problem(lengths="kv"),
    "lengths, causal": problem(lengths=BOTH, band=CAUSAL),
    "lengths, causal, more queries": problem(lengths=BOTH, sq=300, skv=200, band=CAUSAL),
    "lengths, bottom-right, more queries": problem(
        lengths=BOTH, sq=300, skv=200, band=BOTTOM_RIGHT
    ),
    "lengths, window": problem(lengths=BOTH, band=WINDOW),
    "lengths, window, bottom-right": problem(lengths=BOTH, band=WINDOW_BR),
    "lengths, two-sided window": problem(lengths=BOTH, band=TWO_SIDED),
    "lengths, two-sided window, more queries": problem(
        lengths=BOTH, sq=300, skv=200, band=TWO_SIDED
    ),
    "lengths, only a left bound, bottom-right": problem(
        lengths=BOTH, band=Band(64, None, Alignment.BOTTOM_RIGHT)
    ),
    "lengths, layout bshd": problem(lengths=BOTH, layout="bshd"),
}

_BIAS = {
    **{
        f"bias [{', '.join(axes)}]": problem(bias=axes)
        for axes in ("bhst", "1hst", "b1st", "11st", "111t", "b11t", "1h1t")
    },
    **{
        f"bias [{', '.join(axes)}] with gradient": problem(bias=axes, bias_grad=True)
        for axes in ("bhst", "1hst", "b1st", "11st", "111t", "b11t", "1h1t")
    },
    "bias float32": problem(bias="1hst", bias_dtype=FP32),
    "bias float32 with gradient": problem(bias="1hst", bias_dtype=FP32, bias_grad=True),
    "bias float16 with gradient": problem(bias="1hst", dtype=FP16, bias_grad=True),
    "bias, causal": problem(bias="1hst", bias_grad=True, band=CAUSAL),
    "bias, causal, more keys": problem(bias="1hst", sq=96, band=CAUSAL),
    "bias, bottom-right, more keys": problem(bias="1hst", sq=96, band=BOTTOM_RIGHT),
    "bias, bottom-right, more queries": problem(bias="1hst", sq=300, skv=200, band=BOTTOM_RIGHT),
    "bias, window": problem(bias="1hst", band=WINDOW),
    "bias, two-sided window": problem(bias="1hst", band=TWO_SIDED),
    "bias, lengths": problem(bias="b1st", lengths=BOTH),
    "bias with gradient, lengths": problem(bias="1hst", bias_grad=True, lengths=BOTH),
    "bias, lengths, causal": problem(bias="1hst", lengths=BOTH, band=CAUSAL),
    "bias, lengths, bottom-right": problem(bias="1hst", lengths=BOTH, band=BOTTOM_RIGHT),
    "bias, lengths, two-sided window, bottom-right": problem(
        bias="1hst", lengths=BOTH, band=TWO_SIDED_BR
    ),
    "bias, lengths, only a left bound, bottom-right": problem(
        bias="1hst", lengths=BOTH, band=Band(64, None, Alignment.BOTTOM_RIGHT)
    ),
    "bias, window, more queries": problem(bias="1hst", sq=300, skv=200, band=WINDOW),
    "bias, grouped heads": problem(bias="1hst", bias_grad=True, heads_kv=2),
    "bias, 333 keys": problem(bias="1hst", skv=333, bias_grad=True),
    "bias, sink": problem(bias="1hst", softmax=LEARNABLE, sink_grad=True),
}

_ALIBI = {
    "ALiBi, causal": problem(alibi=True, band=CAUSAL),
    "ALiBi": problem(alibi=True),
    "ALiBi, window": problem(alibi=True, band=WINDOW),
    "ALiBi, two-sided window": problem(alibi=True, band=TWO_SIDED),
    "ALiBi, bottom-right, more queries": problem(alibi=True, sq=300, skv=200, band=BOTTOM_RIGHT),
    "ALiBi, causal, lengths": problem(alibi=True, band=CAUSAL, lengths=BOTH),
    "ALiBi, causal, bias": problem(alibi=True, band=CAUSAL, bias="11st"),
    "ALiBi, causal, dropout": problem(alibi=True, band=CAUSAL, dropout_p=0.1),
    "ALiBi, causal, sink": problem(alibi=True, band=CAUSAL, softmax=OFF_BY_ONE),
    "ALiBi, causal, packed": problem(alibi=True, band=CAUSAL, packed=BOTH),
    "ALiBi, causal, 6 heads": problem(alibi=True, band=CAUSAL, heads=6),
}

_SINKS = {
    "sink": problem(softmax=LEARNABLE, sink_grad=True),
    "sink without gradient": problem(softmax=LEARNABLE),
    "off by one": problem(softmax=OFF_BY_ONE),
    "sink, causal": problem(softmax=LEARNABLE, sink_grad=True, band=CAUSAL),
    "sink, window": problem(softmax=LEARNABLE, sink_grad=True, band=WINDOW),
    "sink, bottom-right, more queries": problem(
        softmax=LEARNABLE, sink_grad=True, sq=300, skv=200, band=BOTTOM_RIGHT
    ),
    "sink, lengths": problem(softmax=LEARNABLE, sink_grad=True, lengths=BOTH),
    "sink, dropout": problem(softmax=LEARNABLE, sink_grad=True, dropout_p=0.1),
    "sink, grouped heads, head_dim 64": problem(
        softmax=LEARNABLE, sink_grad=True, heads_kv=2, d=64, layout="bshd"
    ),
    "sink, head_dim 80": problem(softmax=LEARNABLE, sink_grad=True, d=80),
    "sink, head_dim 192, value 128": problem(softmax=LEARNABLE, sink_grad=True, d=192, dv=128),
}

_DROPOUT = {
    "dropout": problem(dropout_p=0.1),
    "dropout, inference": problem(dropout_p=0.1, training=False),
    "dropout, causal": problem(dropout_p=0.1, band=CAUSAL),
    "dropout, bottom-right, more keys": problem(dropout_p=0.1, sq=96, band=BOTTOM_RIGHT),
    "dropout, bottom-right, more queries": problem(
        dropout_p=0.1, sq=300, skv=200, band=BOTTOM_RIGHT
    ),
    "dropout, window": problem(dropout_p=0.1, band=WINDOW),
    "dropout, two-sided window": problem(dropout_p=0.1, band=TWO_SIDED),
    "dropout, bias": problem(dropout_p=0.1, bias="1hst"),
    "dropout, bias with gradient": problem(dropout_p=0.1, bias="1hst", bias_grad=True),
    "dropout, lengths": problem(dropout_p=0.1, lengths=BOTH),
    "dropout, packed": problem(dropout_p=0.1, packed=BOTH),
    "dropout, packed, bottom-right": problem(dropout_p=0.1, packed=BOTH, band=BOTTOM_RIGHT),
    "dropout, packed, causal": problem(dropout_p=0.1, packed=BOTH, band=CAUSAL),
    "dropout, 333 tokens, grouped heads": problem(dropout_p=0.1, s=333, heads_kv=2),
    "dropout, head_dim 64": problem(dropout_p=0.1, d=64),
}

_PACKED = {
    "packed": problem(packed=BOTH),
    "packed queries, dense keys": problem(packed="q"),
    "dense queries, packed keys": problem(packed="kv"),
    "packed with gaps": problem(packed=BOTH, gaps=True),
    "packed, 40 sequences": problem(packed=BOTH, batch=40),
    "packed, float16": problem(packed=BOTH, dtype=FP16, d=64),
    "packed, causal": problem(packed=BOTH, band=CAUSAL),
    "packed, bottom-right": problem(packed=BOTH, band=BOTTOM_RIGHT),
    "packed, bottom-right, more queries": problem(packed=BOTH, sq=300, skv=200, band=BOTTOM_RIGHT),
    "packed queries, dense keys, bottom-right": problem(packed="q", skv=512, band=BOTTOM_RIGHT),
    "packed, window": problem(packed=BOTH, band=WINDOW_BR),
    "packed, two-sided window": problem(packed=BOTH, band=TWO_SIDED_BR),
    "packed, grouped heads": problem(packed=BOTH, heads_kv=2),
    "packed, grouped heads, causal, head_dim 64": problem(
        packed=BOTH, heads_kv=1, d=64, band=CAUSAL
    ),
    "packed, head_dim 72": problem(packed=BOTH, d=72),
    "packed, head_dim 192, value 128": problem(packed=BOTH, d=192, dv=128),
    "packed, bias": problem(packed=BOTH, bias="1hst"),
    "packed, bias, bottom-right": problem(packed=BOTH, bias="1hst", band=BOTTOM_RIGHT),
    "packed, bias, causal": problem(packed=BOTH, bias="1hst", band=CAUSAL),
    "packed, bias with gradient": problem(packed=BOTH, bias="1hst", bias_grad=True),
    "packed, sink": problem(packed=BOTH, softmax=LEARNABLE, sink_grad=True),
    "packed, sink, head_dim 80": problem(packed=BOTH, softmax=LEARNABLE, sink_grad=True, d=80),
    "packed, off by one, causal": problem(packed=BOTH, softmax=OFF_BY_ONE, band=CAUSAL),
    "packed, sink without gradient": problem(packed=BOTH, softmax=LEARNABLE),
    "packed queries, sink": problem(packed="q", softmax=LEARNABLE, sink_grad=True),
    "dense queries, packed keys, sink": problem(packed="kv", softmax=LEARNABLE, sink_grad=True),
    "packed, inference": problem(packed=BOTH, training=False),
    "packed, one token each": problem(packed=BOTH, s=1),
    "packed, one query each": problem(packed=BOTH, sq=1, skv=256, training=False),
    "packed queries, one each, dense keys": problem(packed="q", sq=1, training=False),
}

_PAGED = {
    **{f"pages of {page}": problem(page=page, skv=512) for page in (1, 16, 64, 128)},
    "pages, one query": problem(page=64, sq=1, skv=2048, heads_kv=2),
    "pages of 1, one query": problem(page=1, sq=1, skv=512),
    "pages, causal": problem(page=64, skv=512, band=CAUSAL),
    "pages, bottom-right": problem(page=64, skv=512, band=BOTTOM_RIGHT),
    "pages, window": problem(page=64, skv=512, band=WINDOW_BR),
    "pages, one query, window": problem(page=64, sq=1, skv=512, band=WINDOW_BR),
    "pages, sink": problem(page=64, skv=512, softmax=LEARNABLE),
    "pages, sink, one query": problem(page=64, sq=1, skv=512, softmax=LEARNABLE),
    "pages, bias": problem(page=64, skv=512, bias="11st"),
    "pages, dropout": problem(page=64, skv=512, dropout_p=0.1),
    "pages, head_dim 256": problem(page=64, skv=512, d=256),
    "pages, head_dim 192, value 128": problem(page=64, skv=512, d=192, dv=128),
    "pages, head_dim 1024, one query": problem(page=64, sq=1, skv=512, d=1024),
    "pages, log-sum-exp": problem(page=64, skv=512, return_lse=True),
    "pages, packed queries": problem(page=64, skv=512, packed="q"),
    "pages, packed queries, bottom-right": problem(
        page=64, skv=512, packed="q", band=BOTTOM_RIGHT, heads_kv=2
    ),
    "pages, packed queries, log-sum-exp": problem(page=64, skv=512, packed="q", return_lse=True),
    "pages, packed queries, one each": problem(page=64, sq=1, skv=512, packed="q"),
}

_ONE_QUERY = {
    "one query": problem(sq=1, skv=512),
    "one query, inference": problem(sq=1, skv=2048, heads=32, heads_kv=8, training=False),
    "one query, causal": problem(sq=1, skv=512, band=CAUSAL),
    "one query, causal, head_dim 256": problem(sq=1, skv=512, band=CAUSAL, d=256, training=False),
    "one query, window": problem(sq=1, skv=512, band=WINDOW_BR),
    "one query, lengths": problem(sq=1, skv=512, lengths=BOTH),
    "one query, lengths, bottom-right": problem(sq=1, skv=512, lengths=BOTH, band=BOTTOM_RIGHT),
    "one query, lengths, window": problem(sq=1, skv=512, lengths=BOTH, band=WINDOW_BR),
    "one query, bias": problem(sq=1, skv=512, bias="1hst", bias_grad=True),
    "one query, dropout": problem(sq=1, skv=512, dropout_p=0.1),
    "one query, sink": problem(sq=1, skv=512, softmax=LEARNABLE, sink_grad=True),
    "one query, sink, lengths": problem(sq=1, skv=512, softmax=LEARNABLE, lengths=BOTH),
    "one query, sink, bottom-right": problem(sq=1, skv=512, softmax=OFF_BY_ONE, band=BOTTOM_RIGHT),
    "one query, ALiBi, causal": problem(sq=1, skv=512, alibi=True, band=CAUSAL),
    "one query, max_logit": problem(sq=1, skv=512, training=False, return_max_logit=True),
    "one query, deterministic": problem(sq=1, skv=2048, heads=32, heads_kv=8, deterministic=True),
    "one query, head_dim 256": problem(sq=1, skv=512, d=256),
    "one query, grouped heads, lengths, log-sum-exp": problem(
        sq=1, skv=512, heads_kv=2, lengths=BOTH, training=False, return_lse=True
    ),
}

_DETERMINISTIC = {
    "deterministic": problem(deterministic=True),
    "deterministic, causal, grouped heads": problem(
        deterministic=True, band=CAUSAL, heads_kv=2, layout="bshd"
    ),
    "deterministic, window": problem(deterministic=True, band=WINDOW),
    "deterministic, lengths": problem(deterministic=True, lengths=BOTH),
    "deterministic, bias": problem(deterministic=True, bias="1hst"),
    "deterministic, bias with gradient": problem(deterministic=True, bias="1hst", bias_grad=True),
    "deterministic, dropout": problem(deterministic=True, dropout_p=0.1),
    "deterministic, ALiBi, causal": problem(deterministic=True, alibi=True, band=CAUSAL),
    "deterministic, sink": problem(deterministic=True, softmax=LEARNABLE, sink_grad=True),
    "deterministic, packed": problem(deterministic=True, packed=BOTH),
    "deterministic, packed queries, dense keys": problem(deterministic=True, packed="q"),
    "deterministic, packed, causal, grouped heads": problem(
        deterministic=True, packed=BOTH, band=CAUSAL, heads_kv=2
    ),
    "deterministic, packed, dropout": problem(deterministic=True, packed=BOTH, dropout_p=0.1),
    "deterministic, packed, sink": problem(
        deterministic=True, packed=BOTH, softmax=LEARNABLE, sink_grad=True
    ),
    "deterministic, head_dim 192, value 128": problem(deterministic=True, d=192, dv=128),
}

_FUNCTIONS = {
    "softcap": problem(softcap=30.0),
    "softcap, grouped heads, head_dim 256": problem(softcap=30.0, heads_kv=2, d=256),
    "softcap, causal": problem(softcap=30.0, band=CAUSAL),
    "softcap, window": problem(softcap=30.0, band=WINDOW),
    "softcap, bottom-right, more queries": problem(
        softcap=30.0, sq=300, skv=200, band=BOTTOM_RIGHT
    ),
    "softcap, lengths": problem(softcap=30.0, lengths=BOTH),
    "softcap, lengths, bottom-right": problem(softcap=30.0, lengths=BOTH, band=BOTTOM_RIGHT),
    "softcap, bias": problem(softcap=30.0, bias="1hst"),
    "softcap, bias float32": problem(softcap=30.0, bias="1hst", bias_dtype=FP32),
    "softcap, bias with gradient": problem(softcap=30.0, bias="1hst", bias_grad=True),
    "softcap, dropout": problem(softcap=30.0, dropout_p=0.1),
    "softcap, sink": problem(softcap=30.0, softmax=LEARNABLE, sink_grad=True),
    "softcap, ALiBi, causal": problem(softcap=30.0, alibi=True, band=CAUSAL),
    "softcap, deterministic": problem(softcap=30.0, deterministic=True),
    "softcap, max_logit": problem(softcap=30.0, training=False, return_max_logit=True),
    "softcap, one query": problem(softcap=30.0, sq=1, skv=512),
    "softcap, packed": problem(softcap=30.0, packed=BOTH),
    "softcap, packed, causal": problem(softcap=30.0, packed=BOTH, band=CAUSAL),
    "softcap, pages": problem(softcap=30.0, page=64, skv=512),
    "softcap, pages, one query": problem(softcap=30.0, page=64, sq=1, skv=512),
    "slopes [1, h]": problem(slopes="1h11"),
    "slopes [b, h], causal": problem(slopes="bh11", band=CAUSAL),
    "slopes [1, h], lengths, bottom-right": problem(slopes="1h11", lengths=BOTH, band=BOTTOM_RIGHT),
    "slopes [1, h], packed": problem(slopes="1h11", packed=BOTH),
    "slopes [1, h], sink, causal": problem(slopes="1h11", softmax=LEARNABLE, band=CAUSAL),
    "score_mod, reads no tensor": problem(score_mod=RELATIVE),
    "score_mod, causal": problem(score_mod=RELATIVE, band=CAUSAL),
    "score_mod, softcap": problem(score_mod=RELATIVE, softcap=30.0),
    "score_mod with a tensor": problem(score_mod=SCALED),
    "slopes [b, h], lengths": problem(slopes="bh11", lengths=BOTH),
    "score_mod with a tensor, lengths": problem(score_mod=SCALED, lengths=BOTH),
}

_MAX_LOGIT = {
    "max_logit": problem(training=False, return_max_logit=True),
    "max_logit, log-sum-exp": problem(return_max_logit=True),
    "max_logit, log-sum-exp, causal": problem(return_max_logit=True, band=CAUSAL),
    "max_logit, log-sum-exp, packed": problem(return_max_logit=True, packed=BOTH),
    "max_logit, packed": problem(training=False, return_max_logit=True, packed=BOTH),
    "max_logit, lengths": problem(training=False, return_max_logit=True, lengths=BOTH),
    "max_logit, bias": problem(training=False, return_max_logit=True, bias="1hst"),
    "max_logit, sink": problem(training=False, return_max_logit=True, softmax=LEARNABLE),
    "max_logit, dropout": problem(training=False, return_max_logit=True, dropout_p=0.1),
    "max_logit, log-sum-exp, dropout": problem(return_max_logit=True, dropout_p=0.1),
    "max_logit, pages": problem(page=64, skv=512, return_max_logit=True),
}

#: topic -> name -> problem
TOPICS: dict[str, dict[str, AttentionProblem]] = {
    "Element types, layouts, tokens": _DTYPES_AND_LAYOUTS,
    "Head dims": _HEAD_DIMS,
    "Masks": _MASKS,
    "Sequence lengths": _LENGTHS,
    "Bias": _BIAS,
    "ALiBi": _ALIBI,
    "Sinks": _SINKS,
    "Dropout": _DROPOUT,
    "Packed sequences": _PACKED,
    "Pages": _PAGED,
    "One query": _ONE_QUERY,
    "Deterministic gradients": _DETERMINISTIC,
    "Largest logit": _MAX_LOGIT,
    "Functions of the logits": _FUNCTIONS,
}

PROBLEMS = {name: asked for topic in TOPICS.values() for name, asked in topic.items()}
