"""Functions of the logits as users write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import DType
from ..logits import Array, At
from .case import Auxiliary, Formula, ScoreModCase


def _one(score: Array, at: At, *_: Array) -> Array:
    return np.ones_like(score)


def _relative_position(graph: Any, score: Any) -> Any:
    distance = graph.gen_index(score, 2) - graph.gen_index(score, 3)
    return score - 0.125 * graph.abs(distance)


def _tanh_cap(graph: Any, score: Any) -> Any:
    return 2.0 * graph.tanh(score / 2.0)


def _causal(graph: Any, score: Any) -> Any:
    row, column = graph.gen_index(score, 2), graph.gen_index(score, 3)
    return graph.binary_select(score, float("-inf"), row >= column)


def _causal_keywords(graph: Any, score: Any) -> Any:
    """Spelled as a callback of cuDNN's frontend."""
    row = graph.gen_index(input=score, axis=2, name="row")
    column = graph.gen_index(input=score, axis=3, name="column")
    visible = graph.cmp_ge(input=row, comparison=column, name="visible")
    return graph.binary_select(input0=score, input1=float("-inf"), mask=visible)


def _head_and_batch(graph: Any, score: Any) -> Any:
    batch, head = graph.gen_index(score, 0), graph.gen_index(score, 1)
    return score * (1.0 + 0.25 * graph.to_float(head) + 0.5 * graph.to_float(batch))


def _add(graph: Any, score: Any, bias: Any) -> Any:
    return score + bias


def _scaled_row(graph: Any, score: Any, row: Any) -> Any:
    return score * row


def _temperature(graph: Any, score: Any, factor: Any) -> Any:
    return score * factor


def _two_operands(graph: Any, score: Any, factor: Any, bias: Any) -> Any:
    return graph.tanh(score) * factor + bias


def _documents(graph: Any, score: Any, rows: Any, columns: Any) -> Any:
    return graph.binary_select(score, float("-inf"), rows == columns)


def _squared_relu(graph: Any, score: Any) -> Any:
    positive = graph.relu(score)
    return positive * positive


def _straight_through(graph: Any, grad: Any, score: Any) -> Any:
    """The gradient as if the logits had not been capped."""
    return grad


def _visible(score: Array, visible: Array) -> Array:
    return np.where(visible, score, -np.inf)


def _per_head(at: At) -> float:
    return 1.0 + 0.25 * at.head + 0.5 * at.batch


_CAUSAL: tuple[Formula, Formula] = (
    lambda s, at: _visible(s, at.i >= at.j),
    lambda s, at: np.where(at.i >= at.j, 1.0, 0.0),
)

#: By name.
AS_USED: dict[str, ScoreModCase] = {
    "relative_position": ScoreModCase(
        _relative_position, lambda s, at: s - 0.125 * np.abs(at.i - at.j), _one
    ),
    "tanh_cap": ScoreModCase(
        _tanh_cap,
        lambda s, at: 2 * np.tanh(s / 2),
        lambda s, at: 1 - np.tanh(s / 2) ** 2,
    ),
    "causal": ScoreModCase(_causal, *_CAUSAL),
    "causal_keywords": ScoreModCase(_causal_keywords, *_CAUSAL),
    "head_and_batch": ScoreModCase(
        _head_and_batch,
        lambda s, at: s * _per_head(at),
        lambda s, at: np.full_like(s, _per_head(at)),
    ),
    "bias": ScoreModCase(_add, lambda s, at, b: s + b, _one, (Auxiliary("bhss"),)),
    "bias_of_heads_bfloat16": ScoreModCase(
        _add, lambda s, at, b: s + b, _one, (Auxiliary("1hss", DType.BFLOAT16),)
    ),
    "bias_of_keys": ScoreModCase(_add, lambda s, at, b: s + b, _one, (Auxiliary("b11s"),)),
    "factor_of_rows": ScoreModCase(
        _scaled_row,
        lambda s, at, r: s * r,
        lambda s, at, r: np.broadcast_to(r, s.shape),
        (Auxiliary("b1s1"),),
    ),
    "temperature": ScoreModCase(
        _temperature,
        lambda s, at, t: s * t,
        lambda s, at, t: np.full_like(s, t),
        (Auxiliary(None),),
    ),
    "scalar_and_tensor": ScoreModCase(
        _two_operands,
        lambda s, at, t, b: np.tanh(s) * t + b,
        lambda s, at, t, b: (1 - np.tanh(s) ** 2) * t,
        (Auxiliary(None), Auxiliary("1hss")),
    ),
    "documents": ScoreModCase(
        _documents,
        lambda s, at, r, c: _visible(s, r == c),
        lambda s, at, r, c: np.where(r == c, 1.0, 0.0),
        (
            Auxiliary("b1s1", DType.INT32, "documents"),
            Auxiliary("b11s", DType.INT32, "documents"),
        ),
    ),
    "squared_relu": ScoreModCase(
        _squared_relu,
        lambda s, at: np.maximum(s, 0) ** 2,
        lambda s, at: 2 * np.maximum(s, 0),
    ),
    "straight_through": ScoreModCase(
        _tanh_cap, lambda s, at: 2 * np.tanh(s / 2), _one, bprop=_straight_through
    ),
}
