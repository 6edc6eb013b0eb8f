"""The check that a backward graph is given what its forward computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...problem import Softmax
from ..logits import Array, Features
from ..reference import attention
from ..tolerances import assert_close, error_scales
from .reading import Reading

#: More of a difference between log-sum-exps than float32 makes, relative to ``1 + |LSE| / 64``.
_RESOLVED = 1e-4


def checked_features(given: Reading, output: Array, grad_output: Array) -> Features:
    """Raise unless the backward graph is given what its forward computed, NaN for NaN.

    Rows past a length do not matter, nor do those without a gradient. Returns the features,
    with the sink, if the statistics hold one that the graph does not know.
    """
    stats = given.values["stats"]
    packed = given.graph.operand("stats").ragged is not None
    lse = (given.queries.padded(stats) if packed else stats)[..., : output.shape[2], 0]
    matters = (np.nan_to_num(grad_output, nan=1.0) != 0).any(axis=-1)
    if given.queries.lengths is not None:
        matters &= (np.arange(output.shape[2]) < given.queries.lengths[:, None])[:, None]
    features = _with_sink_of(given, np.where(matters, lse, np.nan))
    exact = attention(*given.operands, **features)
    scales = error_scales(*given.operands, dtype=given.graph.io_dtype, **features)
    _compare("output", output, exact.output, scales.output, matters)
    _compare("stats", lse, exact.lse, scales.lse, matters)
    return features


def _with_sink_of(given: Reading, lse: Array) -> Features:
    """The features with the sink of each head that explains the statistics.

    The log-sum-exp is all that the backward pass must know of a sink: graphs without its
    gradient leave it out.

    Args:
        given: the call.
        lse: ``[B, Hq, Sq]``, as given; NaN in rows that do not matter.
    """
    features = given.features
    if features["sink"] is not None:
        return features
    keys = attention(*given.operands, **features).lse
    resolved = lse - keys > _RESOLVED * (1 + np.abs(lse) / 64)
    more = np.where(resolved, lse + np.log(-np.expm1(keys - lse)), np.nan)
    # The smallest difference that float32 statistics resolve is the least exact sink.
    gain = np.where(np.isnan(more), -np.inf, lse - keys)
    if not (gain > -np.inf).any():
        return features
    sink = np.full(lse.shape[1], -np.inf)
    for h in range(lse.shape[1]):
        best = np.unravel_index(np.argmax(gain[:, h]), gain[:, h].shape)
        sink[h] = -np.inf if np.isnan(more[:, h][best]) else more[:, h][best]
    return Features(**{**features, "softmax": Softmax.LEARNABLE, "sink": sink})


def _compare(name: str, given: Array, exact: Array, scale: Array, matters: NDArray[Any]) -> None:
    matters = np.broadcast_to(matters[..., None] if exact.ndim == 4 else matters, exact.shape)
    scale = np.broadcast_to(scale, exact.shape)
    if np.isfinite(given[matters & np.isnan(exact)]).any():
        raise AssertionError(f"{name} is finite where its forward gives NaN")
    # A row without visible keys is known, but NaN in its operands leaves its error scale unknown.
    known = matters & ~(np.isnan(exact) | np.isnan(scale))
    assert_close(name, given[known], exact[known], scale[known])
