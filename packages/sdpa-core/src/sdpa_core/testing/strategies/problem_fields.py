"""Problems of models' sizes, of which nothing is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from ...dtypes import DType
from ...layout import Shape
from ...problem import AttentionProblem, Softmax
from ...tensor import TensorSpec
from ..placement.function import traced
from ..score_mods import SCORE_MODS
from .common import AXES, DTYPES, HALF, Draw, bands
from .memory import operands, page_tables, sides, specs

_WIDTHS = (8, 16, 64, 72, 128, 136, 192, 256, 264, 512)
_LENGTHS = (1, 2, 3, 63, 64, 65, 128, 192, 1000, 1025, 4096, 70000)


@st.composite
def problems(draw: Draw[Any], *, odd: bool = True) -> AttentionProblem:
    """A problem as the adapters normalize it, of any size, with any features together.

    Args:
        odd: also element types, head dims, strides and addresses that cuDNN does not take.
    """
    dtype = draw(st.sampled_from(DTYPES if odd else HALF))
    batch = draw(st.sampled_from((1, 2, 3, 33, 600, *[0] * odd)))
    heads_kv = draw(st.sampled_from((1, 2, 4)))
    heads = heads_kv * draw(st.sampled_from((1, 2, 8)))
    lengths = st.sampled_from((*_LENGTHS, *[0] * odd))
    tokens_q, tokens_kv = draw(lengths), draw(lengths)
    widths = st.sampled_from((*_WIDTHS, *([1, 7, 40] if odd else [])))
    width, width_v = draw(widths), 0
    width_v = draw(st.just(width) | widths)
    where = draw(st.sampled_from(("dense", "dense", "q", "kv", "both", "paged", "paged q")))
    side_q = draw(sides(where in ("q", "both", "paged q"), batch, tokens_q))
    side_kv = draw(sides(where in ("kv", "both"), batch, tokens_kv))
    query = draw(operands((batch, heads, tokens_q, width), dtype, side_q, odd))
    paged = draw(page_tables(batch, tokens_kv)) if where.startswith("paged") else None
    if paged is None:
        key_shape, value_shape = ((batch, heads_kv, tokens_kv, w) for w in (width, width_v))
    else:
        pool = (draw(st.integers(1, 600)), heads_kv, draw(st.sampled_from((1, 16, 128))))
        key_shape, value_shape = (*pool, width), (*pool, width_v)
    key = draw(operands(key_shape, dtype, side_kv, odd))
    value = draw(operands(value_shape, dtype, side_kv, odd))
    full = (batch, heads, tokens_q, paged.tokens if paged else tokens_kv)
    is_flag = st.booleans()
    problem = AttentionProblem.of(
        query,
        key,
        value,
        **draw(_features(full, dtype, odd)),
        seq_lens_q=draw(is_flag),
        seq_lens_kv=draw(is_flag),
        packed_q=side_q,
        packed_kv=side_kv,
        paged=paged,
        training=draw(is_flag),
        return_lse=draw(is_flag),
        return_max_logit=draw(is_flag),
        deterministic=draw(is_flag),
        bias_grad=draw(is_flag),
        sink_grad=draw(is_flag),
    )
    if problem.training and side_q is None and draw(is_flag):
        incoming = draw(specs(problem.output.shape, dtype, odd=odd))
        problem = replace(problem, grad_output=incoming.canonical())
    return problem


@st.composite
def _features(draw: Draw[Any], full: Shape, dtype: DType, odd: bool) -> dict[str, Any]:
    batch, heads = full[:2]
    slopes = TensorSpec.dense((draw(st.sampled_from((1, batch))), heads, 1, 1), DType.FLOAT32)
    alibi = draw(st.sampled_from((None, None, None, "standard", "given")))
    bias = st.none() | st.sampled_from(AXES).flatmap(
        lambda axes: st.sampled_from((dtype, DType.FLOAT32)).flatmap(
            lambda kind: specs(_broadcast(axes, full), kind, odd=odd)
        )
    )
    name = draw(st.sampled_from((None, None, None, *SCORE_MODS)))
    return {
        "band": draw(bands(most=2000)),
        "bias": draw(bias),
        "alibi": alibi == "standard",
        "alibi_slopes": slopes if alibi == "given" else None,
        "softmax": draw(st.sampled_from((Softmax.VANILLA, *Softmax))),
        "softcap": draw(st.sampled_from((None, None, 30.0))),
        "score_mod": None if name is None else traced(SCORE_MODS[name], full),
        "dropout_p": draw(st.sampled_from((0.0, 0.0, 0.1))),
    }


def _broadcast(axes: str, full: Shape) -> Shape:
    return tuple(1 if axis == "1" else n for axis, n in zip(axes, full, strict=True))
