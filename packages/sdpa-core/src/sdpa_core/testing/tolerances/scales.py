"""The typical error of every element of every result."""

from __future__ import annotations

from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ...dtypes import DType
from ..logits import Array, Attended, Features
from ..reference import (
    Forward,
    Gradients,
    attended,
    attention,
    attention_backward,
    incoming,
    zero_gradients,
)
from .of_head import HeadErrors
from .precision import Precision


class ErrorScales(NamedTuple):
    """The typical error of each element; shapes as the results'. Gradients: None in inference."""

    output: Array
    lse: Array
    max_logit: Array
    grad_query: Array | None = None
    grad_key: Array | None = None
    grad_value: Array | None = None
    grad_bias: Array | None = None
    grad_sink: Array | None = None


def error_scales(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    grad_output: ArrayLike | None = None,
    *,
    dtype: DType,
    bias_dtype: DType | None = None,
    **features: Unpack[Features],
) -> ErrorScales:
    """Typical errors of an implementation in ``dtype`` for these finite operands.

    Args:
        query, key, value, features: as for ``attention``.
        grad_output: as for ``attention_backward``; None leaves the gradients out.
        dtype: element type of the operands.
        bias_dtype: that of the bias; None: the operands'.
    """
    forward = attention(query, key, value, **features)
    exact = None
    if grad_output is not None:
        exact = attention_backward(query, key, value, grad_output, **features)
    call = attended(query, key, value, features)
    grad = None if grad_output is None else incoming(grad_output, call)
    return scales_of(call, features, grad, forward, exact, dtype, bias_dtype or dtype)


def scales_of(
    call: Attended,
    features: Features,
    grad: Array | None,
    forward: Forward,
    exact: Gradients | None,
    dtype: DType,
    bias_dtype: DType,
) -> ErrorScales:
    """``error_scales`` of a call whose exact results are known."""
    precision = Precision.of(dtype)
    output, lse = np.zeros(forward.output.shape), np.zeros(forward.lse.shape)
    max_logit = np.zeros(forward.max_logit.shape)
    squares = zero_gradients(call, features)
    with np.errstate(invalid="ignore", over="ignore"):
        for head in call.heads():
            errors = HeadErrors.of(head, call, forward, precision)
            output[head.query_at] = errors.of_output()
            lse[head.query_at] = errors.of_lse
            at = head.at.head
            max_logit[at] = np.maximum(max_logit[at], errors.of_largest(forward.max_logit[at]))
            if grad is not None:
                errors.add_gradients(squares, grad[head.query_at])
    if exact is None:
        return ErrorScales(output, lse, max_logit)
    stored = {
        # cuDNN has the gradient of a float32 bias in the query's type.
        "grad_bias": max(Precision.of(bias_dtype), precision, key=lambda p: p.u),
        "grad_sink": Precision.of(DType.FLOAT32),
    }
    gradients = {
        name: np.sqrt(square) + stored.get(name, precision).of_result(gradient)
        for name, square, gradient in zip(Gradients._fields, squares, exact, strict=True)
        if square is not None and gradient is not None
    }
    return ErrorScales(output, lse, max_logit, **gradients)
