"""Functions of the logits for each operation of ``sdpa_core.score_mod``.

One for every operand that a gradient can flow through, with a constant as the other one. Small
powers of two as factors keep what the operation is given within the range it is defined for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..logits import Array, At
from .case import ScoreModCase

_Elementwise = Callable[[Array], NDArray[Any]]


def _of_score(
    callback: Callable[[Any, Any], Any], value: _Elementwise, slope: _Elementwise
) -> ScoreModCase:
    """A function that looks at nothing but the logit."""
    return ScoreModCase(callback, lambda s, at: value(s), lambda s, at: slope(s))


def _of_position(
    callback: Callable[[Any, Any], Any], visible: Callable[[Array, At], NDArray[Any]]
) -> ScoreModCase:
    """Logits where ``visible``, a quarter of them elsewhere; the score of a pair of tokens."""

    def selected(graph: Any, score: Any) -> Any:
        return graph.binary_select(score, score * 0.25, callback(graph, score))

    def factor(score: Array, at: At) -> Array:
        return np.where(np.broadcast_to(visible(score, at), score.shape), 1.0, 0.25)

    return ScoreModCase(selected, lambda s, at: s * factor(s, at), factor)


def _positive(graph: Any, score: Any) -> Any:
    return score * score + 0.5


def _row(graph: Any, score: Any) -> Any:
    return graph.gen_index(score, 2)


def _column(graph: Any, score: Any) -> Any:
    return graph.gen_index(score, 3)


def _sigmoid(s: Array) -> Array:
    return 1 / (1 + np.exp(-s))


def _constant(number: float) -> _Elementwise:
    return lambda s: np.full_like(s, number)


#: One operand.
_UNARY = {
    "neg": _of_score(lambda g, s: g.neg(s), lambda s: -s, _constant(-1)),
    "abs": _of_score(lambda g, s: g.abs(s), np.abs, np.sign),
    "exp": _of_score(
        lambda g, s: g.exp(0.5 * s), lambda s: np.exp(s / 2), lambda s: np.exp(s / 2) / 2
    ),
    "log": _of_score(
        lambda g, s: g.log(_positive(g, s)),
        lambda s: np.log(s * s + 0.5),
        lambda s: 2 * s / (s * s + 0.5),
    ),
    "sqrt": _of_score(
        lambda g, s: g.sqrt(_positive(g, s)),
        lambda s: np.sqrt(s * s + 0.5),
        lambda s: s / np.sqrt(s * s + 0.5),
    ),
    "rsqrt": _of_score(
        lambda g, s: g.rsqrt(_positive(g, s)),
        lambda s: (s * s + 0.5) ** -0.5,
        lambda s: -s * (s * s + 0.5) ** -1.5,
    ),
    "reciprocal": _of_score(
        lambda g, s: g.reciprocal(_positive(g, s)),
        lambda s: 1 / (s * s + 0.5),
        lambda s: -2 * s / (s * s + 0.5) ** 2,
    ),
    "sin": _of_score(lambda g, s: g.sin(s), np.sin, np.cos),
    "cos": _of_score(lambda g, s: g.cos(s), np.cos, lambda s: -np.sin(s)),
    "tan": _of_score(
        lambda g, s: g.tan(0.25 * s),
        lambda s: np.tan(s / 4),
        lambda s: (1 + np.tan(s / 4) ** 2) / 4,
    ),
    "tanh": _of_score(lambda g, s: g.tanh(s), np.tanh, lambda s: 1 - np.tanh(s) ** 2),
    "sigmoid": _of_score(
        lambda g, s: g.sigmoid(s), _sigmoid, lambda s: _sigmoid(s) * (1 - _sigmoid(s))
    ),
    "softplus": _of_score(lambda g, s: g.softplus(s), lambda s: np.log1p(np.exp(s)), _sigmoid),
    "relu": _of_score(lambda g, s: g.relu(s), lambda s: np.maximum(s, 0), lambda s: 1.0 * (s > 0)),
    "ceil": _of_score(lambda g, s: s + g.ceil(s), lambda s: s + np.ceil(s), np.ones_like),
    "floor": _of_score(lambda g, s: s + g.floor(s), lambda s: s + np.floor(s), np.ones_like),
    # Its gradient does not depend on the output's: cudnn_form must mention it nevertheless.
    "floor_alone": _of_score(lambda g, s: g.floor(s), np.floor, np.zeros_like),
}

#: Two operands: the score first, second, and both.
_BINARY = {
    "add": _of_score(lambda g, s: g.add(s, 0.5), lambda s: s + 0.5, np.ones_like),
    "sub": _of_score(lambda g, s: s - 0.5, lambda s: s - 0.5, np.ones_like),
    "sub_from": _of_score(lambda g, s: 1 - s, lambda s: 1 - s, _constant(-1)),
    "mul": _of_score(lambda g, s: s * 1.5, lambda s: 1.5 * s, _constant(1.5)),
    "square": _of_score(lambda g, s: s * s, lambda s: s * s, lambda s: 2 * s),
    "div": _of_score(lambda g, s: s / 1.5, lambda s: s / 1.5, _constant(1 / 1.5)),
    "div_of": _of_score(
        lambda g, s: 2 / _positive(g, s),
        lambda s: 2 / (s * s + 0.5),
        lambda s: -4 * s / (s * s + 0.5) ** 2,
    ),
    "div_both": _of_score(
        lambda g, s: s / _positive(g, s),
        lambda s: s / (s * s + 0.5),
        lambda s: (0.5 - s * s) / (s * s + 0.5) ** 2,
    ),
    "pow": _of_score(
        lambda g, s: _positive(g, s) ** 1.5,
        lambda s: (s * s + 0.5) ** 1.5,
        lambda s: 3 * s * (s * s + 0.5) ** 0.5,
    ),
    "pow_of": _of_score(lambda g, s: 2**s, lambda s: 2**s, lambda s: np.log(2) * 2**s),
    "max": _of_score(
        lambda g, s: g.max(s, 0.25), lambda s: np.maximum(s, 0.25), lambda s: 1.0 * (s > 0.25)
    ),
    "max_both": _of_score(
        lambda g, s: g.max(2 * s, g.neg(s)),
        lambda s: np.maximum(2 * s, -s),
        lambda s: np.where(s > 0, 2.0, -1.0),
    ),
    "min": _of_score(
        lambda g, s: g.min(0.25, s), lambda s: np.minimum(s, 0.25), lambda s: 1.0 * (s < 0.25)
    ),
}

#: Comparisons of positions and of logits, and what joins them.
_CHOICES = {
    "cmp_eq": _of_position(lambda g, s: _row(g, s) == _column(g, s), lambda s, at: at.i == at.j),
    "cmp_neq": _of_position(lambda g, s: _row(g, s) != _column(g, s), lambda s, at: at.i != at.j),
    "cmp_lt": _of_position(lambda g, s: _row(g, s) < _column(g, s), lambda s, at: at.i < at.j),
    "cmp_le": _of_position(lambda g, s: _row(g, s) <= 7, lambda s, at: at.i <= 7),
    "cmp_gt": _of_position(lambda g, s: s > 0.5, lambda s, at: s > 0.5),
    "cmp_ge": _of_position(lambda g, s: 0.25 * s >= 0.125, lambda s, at: s >= 0.5),
    "logical_and": _of_position(
        lambda g, s: (_row(g, s) > 3) & (_column(g, s) < 17), lambda s, at: (at.i > 3) & (at.j < 17)
    ),
    "logical_or": _of_position(
        lambda g, s: (_row(g, s) > 13) | (s < 0), lambda s, at: (at.i > 13) | (s < 0)
    ),
    "logical_not": _of_position(lambda g, s: ~(_row(g, s) > 3), lambda s, at: at.i <= 3),
    "to_int": _of_position(
        lambda g, s: g.to_int(s > 0) + _column(g, s) > 11, lambda s, at: (s > 0) + at.j > 11
    ),
    "integers": _of_position(
        lambda g, s: g.max(_row(g, s) - _column(g, s), g.abs(_column(g, s) - 5) * 2) < 9,
        lambda s, at: np.maximum(at.i - at.j, 2 * np.abs(at.j - 5)) < 9,
    ),
}

_NUMBERS = {
    "to_float": ScoreModCase(
        lambda g, s: s * (1 + 0.25 * g.to_float(_row(g, s) < _column(g, s))),
        lambda s, at: s * (1 + 0.25 * (at.i < at.j)),
        lambda s, at: 1 + 0.25 * np.broadcast_to(at.i < at.j, s.shape),
    ),
    # Ints that the gradient is multiplied with.
    "difference_of_ints": ScoreModCase(
        lambda g, s: s * (1 + 0.0625 * (_row(g, s) - _column(g, s))),
        lambda s, at: s * (1 + 0.0625 * (at.i - at.j)),
        lambda s, at: 1 + 0.0625 * np.broadcast_to(at.i - at.j, s.shape),
    ),
    "product_of_ints": ScoreModCase(
        lambda g, s: s * (1 + 0.0625 * g.to_float(_column(g, s) * 3)),
        lambda s, at: s * (1 + 0.1875 * at.j),
        lambda s, at: 1 + 0.1875 * np.broadcast_to(at.j, s.shape),
    ),
    "binary_select": _of_score(
        lambda g, s: g.binary_select(g.tanh(s), s * s, s > 0),
        lambda s: np.where(s > 0, np.tanh(s), s * s),
        lambda s: np.where(s > 0, 1 - np.tanh(s) ** 2, 2 * s),
    ),
}

#: By the operation's name, with what is special about the operands after it.
OPERATIONS: dict[str, ScoreModCase] = {**_UNARY, **_BINARY, **_CHOICES, **_NUMBERS}
