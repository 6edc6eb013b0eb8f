"""A function of the logits as a case: as users write it, and as the oracle computes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...dtypes import DType
from ..logits import Array, At
from ..rounding import round_to

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
