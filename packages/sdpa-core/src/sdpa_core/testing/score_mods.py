"""Functions of the logits for cases: as users write them, and as the oracle computes them.

The two forms share nothing: the callback is written against ``score_mod.Graph``, the oracle's form
is NumPy with its derivative worked out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DType
from .logits import Array, At
from .rounding import round_to

#: Both are ``f(score, at, *auxiliary)``, the second is the derivative by the score.
Formula = Callable[..., Array]


@dataclass(frozen=True)
class Auxiliary:
    """An operand of a score_mod.

    Attributes:
        axes: which axes of ``[B, Hq, Sq, Skv]`` it has, as ``Case.bias``; None for a scalar that
            is given at launch.
        dtype: of its elements.
        values: what it holds: ``normal`` deviates, or ``documents``, rising numbers from 0 to 2.
    """

    axes: str | None
    dtype: DType = DType.FLOAT32
    values: str = "normal"

    def shape(self, full: tuple[int, ...]) -> tuple[int, ...] | None:
        """For logits of shape ``full``; None for a scalar."""
        if self.axes is None:
            return None
        return tuple(1 if axis == "1" else n for axis, n in zip(self.axes, full, strict=True))

    def draw(self, full: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Numbers of its type, in float64."""
        shape = self.shape(full)
        if shape is None:
            return round_to(rng.uniform(0.25, 0.75), self.dtype)
        if self.values == "documents":
            return np.sort(rng.integers(0, 3, shape), axis=int(np.argmax(shape))).astype(float)
        return round_to(rng.standard_normal(shape), self.dtype)


@dataclass(frozen=True)
class ScoreModCase:
    """One function of the logits.

    Attributes:
        callback: ``score_mod(graph, score, *auxiliary)``.
        value, derivative: the same for the oracle.
        auxiliary: what it reads besides, in order.
        bprop: ``score_mod_bprop(graph, grad, score, *auxiliary)``; None: derived.
    """

    callback: Callable[..., Any]
    value: Formula
    derivative: Formula
    auxiliary: tuple[Auxiliary, ...] = ()
    bprop: Callable[..., Any] | None = None

    def function(self, auxiliary: tuple[Array, ...]) -> ScoreModFunction:
        """The oracle's form with its operands."""
        return ScoreModFunction(self, auxiliary)


@dataclass(frozen=True)
class ScoreModFunction:
    """``logits.Function`` of a case."""

    case: ScoreModCase
    auxiliary: tuple[Array, ...]

    def value(self, score: Array, at: At) -> Array:
        value: Array = np.broadcast_to(self.case.value(score, at, *self._parts(at)), score.shape)
        return value

    def pull_back(self, gradient: Array, score: Array, at: At) -> Array:
        slope: Array = gradient * self.case.derivative(score, at, *self._parts(at))
        return slope

    def _parts(self, at: At) -> list[Array]:
        """Of each operand what belongs to one head."""
        return [operand if operand.ndim == 0 else part(operand, at) for operand in self.auxiliary]


def part(operand: NDArray[Any], at: At) -> NDArray[Any]:
    """What of an operand that broadcasts to ``[B, Hq, Sq, Skv]`` belongs to one head's logits."""
    full = operand.reshape((1,) * (4 - operand.ndim) + operand.shape)
    b = at.batch if full.shape[0] != 1 else 0
    h = at.head if full.shape[1] != 1 else 0
    rows = at.i.ravel() if full.shape[2] != 1 else np.zeros(1, dtype=np.int64)
    columns = at.j.ravel() if full.shape[3] != 1 else np.zeros(1, dtype=np.int64)
    own: NDArray[Any] = full[b, h][np.ix_(rows, columns)]
    return own


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

#: Functions of the logits by name.
SCORE_MODS: dict[str, ScoreModCase] = {
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
