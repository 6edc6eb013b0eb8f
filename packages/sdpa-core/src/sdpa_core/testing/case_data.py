"""The data of a case."""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from ..problem import Softmax
from .case import LARGE_LOGIT, Axes, Case, Inputs
from .logits import Array, Mask
from .rounding import FORMATS, round_to


def arrays_of(case: Case) -> Inputs:
    """See ``Case.arrays``."""
    rng = np.random.default_rng([case.seed, *case.name.encode()])
    shapes = (case.query_shape, case.key_shape, case.value_shape, case.output_shape)
    query, key, value, grad_output = (rng.standard_normal(shape) for shape in shapes)
    query, key = _with_logits(case, query, key)
    if case.layout == "expanded_kv":
        key, value = (np.broadcast_to(x[:, :1], x.shape) for x in (key, value))
    return Inputs(
        round_to(query, case.dtype),
        round_to(key, case.dtype),
        round_to(value, case.dtype),
        round_to(grad_output, case.dtype),
        bias=None if case.bias is None else _bias(case, case.bias, rng),
        mask=None if case.mask is None else _mask(case, case.mask, rng),
        alibi_slopes=_slopes(case, rng),
        sink=_sink(case, rng),
        auxiliary=_auxiliary(case, rng),
    )


def _with_logits(case: Case, query: Array, key: Array) -> tuple[Array, Array]:
    if case.logits == "zero_query":
        return np.zeros_like(query), key
    if case.logits == "normal":
        return query, key
    # D products of size a * a, scaled, make the logit.
    a = (LARGE_LOGIT / (abs(case.effective_scale) * case.head_dim)) ** 0.5
    sign = np.copysign(1.0, case.effective_scale)
    sign = -sign if case.logits == "very_negative" else sign
    return a * (1 + 0.01 * query), a * (sign + 0.01 * key)


def _bias(case: Case, axes: Axes, rng: np.random.Generator) -> Array:
    bias = rng.standard_normal(case.shape_of(axes))
    dtype = case.effective_bias_dtype
    match case.bias_values:
        case "very_negative":
            bias = bias - LARGE_LOGIT
        case "hides":
            bias = np.where(_visible(case.shape_of(axes), rng), bias, -np.inf)
        case "lowest":
            bias = np.where(_visible(case.shape_of(axes), rng), bias, -FORMATS[dtype].largest)
    return round_to(bias, dtype)


def _mask(case: Case, axes: Axes, rng: np.random.Generator) -> Mask:
    return _visible(case.shape_of(axes), rng)


def _visible(shape: tuple[int, int, int, int], rng: np.random.Generator) -> Mask:
    """Most pairs; none in some rows, unless all rows are one."""
    visible: Mask = rng.random(shape) < 0.7
    batch, heads, rows, _ = shape
    if 0 in shape:
        return visible
    if rows > 1:
        visible[0, 0, rows // 2] = False
        visible[-1, -1, 0] = False
    elif batch * heads > 1:
        visible[-1, -1] = False
    return visible


def _slopes(case: Case, rng: np.random.Generator) -> Array | None:
    if case.alibi in {None, "standard"}:
        return None
    shape = (case.heads,) if case.alibi == "head" else (case.batch, case.heads)
    return round_to(rng.uniform(0.05, 0.5, shape), DType.FLOAT32)


def _sink(case: Case, rng: np.random.Generator) -> Array | None:
    if case.softmax is not Softmax.LEARNABLE:
        return None
    sink = rng.standard_normal(case.heads)
    return round_to(sink if case.sink is None else np.full(case.heads, case.sink), DType.FLOAT32)


def _auxiliary(case: Case, rng: np.random.Generator) -> tuple[Array, ...]:
    if case.score_mod_case is None:
        return ()
    return tuple(
        operand.draw((case.batch, case.heads, case.tokens_q, case.tokens_kv), rng)
        for operand in case.score_mod_case.auxiliary
    )
