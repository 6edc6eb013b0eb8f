"""Gradients of expressions, against finite differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdpa_core.score_mod import (
    OPS,
    Constant,
    Expression,
    Grad,
    Node,
    Score,
    Symbol,
    array_ops,
    evaluate,
    gradient,
    identity,
    select,
    softcap,
    trace,
)
from sdpa_core.score_mod.symbol import apply

NUMPY = array_ops(np, lambda x: np.asarray(x, np.float64), lambda x: np.asarray(x, np.int32))


def value(expression: Expression, score: Any, grad: Any = 1.0) -> Any:
    def leaf(node: Node) -> Any:
        match node:
            case Score():
                return np.asarray(score, np.float64)
            case Grad():
                return np.broadcast_to(np.asarray(grad, np.float64), np.shape(score))
            case Constant(number):
                return np.asarray(number)
        raise AssertionError(node)

    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(expression, NUMPY, leaf), np.shape(score))


def of(score_mod: Callable[..., Any]) -> Expression:
    return trace(score_mod).expression


def check(score_mod: Callable[..., Any], points: Any, rtol: float = 1e-6) -> None:
    expression = of(score_mod)
    x, h = np.asarray(points, np.float64), 1e-5
    expected = (value(expression, x + h) - value(expression, x - h)) / (2 * h)
    found = value(gradient(expression), x, grad=3.0)
    np.testing.assert_allclose(found, 3 * expected, rtol=rtol, atol=1e-7)


POSITIVE = np.array([0.3, 0.9, 1.7, 4.2])
ANYWHERE = np.array([-2.7, -0.6, 0.4, 1.3, 3.1])

#: For each operation: functions that use it with the score in each place, and where.
SMOOTH: dict[str, tuple[tuple[Callable[..., Any], ...], Any]] = {
    "add": ((lambda g, s: g.add(s, g.exp(s)),), ANYWHERE),
    "sub": ((lambda g, s: g.sub(g.sin(s), g.exp(s)), lambda g, s: 2 - s), ANYWHERE),
    "mul": ((lambda g, s: g.mul(s, g.exp(s)), lambda g, s: s * s * s), ANYWHERE),
    "div": ((lambda g, s: g.div(g.sin(s), s), lambda g, s: 2 / s, lambda g, s: s / 3), ANYWHERE),
    "pow": (
        (lambda g, s: s**3, lambda g, s: s**0.5, lambda g, s: 2**s, lambda g, s: s**s),
        POSITIVE,
    ),
    "max": ((lambda g, s: g.max(s, 0.5), lambda g, s: g.max(s * s, s)), ANYWHERE),
    "min": ((lambda g, s: g.min(s, 0.5), lambda g, s: g.min(s * s, s)), ANYWHERE),
    "neg": ((lambda g, s: -g.exp(s),), ANYWHERE),
    "abs": ((lambda g, s: abs(s * s * s),), ANYWHERE),
    "exp": ((lambda g, s: g.exp(s * 0.5),), ANYWHERE),
    "log": ((lambda g, s: g.log(s),), POSITIVE),
    "sqrt": ((lambda g, s: g.sqrt(s),), POSITIVE),
    "rsqrt": ((lambda g, s: g.rsqrt(s),), POSITIVE),
    "reciprocal": ((lambda g, s: g.reciprocal(s),), ANYWHERE),
    "sin": ((lambda g, s: g.sin(s),), ANYWHERE),
    "cos": ((lambda g, s: g.cos(s),), ANYWHERE),
    "tan": ((lambda g, s: g.tan(s * 0.3),), ANYWHERE),
    "tanh": ((lambda g, s: g.tanh(s), lambda g, s: softcap(s, 2.0)), ANYWHERE),
    "sigmoid": ((lambda g, s: g.sigmoid(s),), ANYWHERE),
    "softplus": ((lambda g, s: g.softplus(s),), ANYWHERE),
    "relu": ((lambda g, s: g.relu(s),), ANYWHERE),
    "ceil": ((lambda g, s: g.ceil(s) * s,), ANYWHERE),
    "floor": ((lambda g, s: g.floor(s) * s,), ANYWHERE),
    "binary_select": ((lambda g, s: select(s > 1, g.exp(s), s * s),), ANYWHERE),
    "to_float": ((lambda g, s: g.to_float(s > 1) * s,), ANYWHERE),
    "to_int": ((lambda g, s: g.to_int(s > 1) * s,), ANYWHERE),
    "logical_and": ((lambda g, s: select((s > 1) & (s < 2), s * s, s),), ANYWHERE),
    "logical_or": ((lambda g, s: select((s > 1) | (s < 0), s * s, s),), ANYWHERE),
    "logical_not": ((lambda g, s: select(~(s > 1), s * s, s),), ANYWHERE),
    **{
        name: ((lambda g, s, name=name: select(getattr(g, name)(s, 1.0), s * s, s),), ANYWHERE)
        for name in ("cmp_eq", "cmp_neq", "cmp_lt", "cmp_le", "cmp_gt", "cmp_ge")
    },
}


@pytest.mark.parametrize("name", OPS)
def test_each_operation_against_finite_differences(name: str) -> None:
    functions, points = SMOOTH[name]
    for function in functions:
        check(function, points)


@pytest.mark.parametrize(
    ("score_mod", "at", "slope"),
    [
        (lambda g, s: abs(s), 0.0, 0.0),
        (lambda g, s: g.relu(s), 0.0, 0.0),
        (lambda g, s: g.max(s, 0.0), 0.0, 0.5),
        (lambda g, s: g.min(s, 2.0), 2.0, 0.5),
        (lambda g, s: g.floor(s), 1.0, 0.0),
        (lambda g, s: select(s > 1, 2 * s, s), 1.0, 1.0),
    ],
)
def test_conventions_where_a_function_is_not_smooth(
    score_mod: Callable[..., Any], at: float, slope: float
) -> None:
    assert value(gradient(of(score_mod)), [at]) == [slope]


@pytest.mark.parametrize(
    ("score_mod", "at", "slope"),
    [
        (lambda g, s: select(s > 0, g.log(s), 0.0), [0.0, -1.0, 2.0], [0, 0, 0.5]),
        (lambda g, s: select(s > 0, g.log(s), s), [0.0, -1.0, 2.0], [1, 1, 0.5]),
        (lambda g, s: select(s > 0, g.sqrt(s) * g.log(s), 3.0), [0.0, -1.0], [0, 0]),
        (lambda g, s: select(s > 0, select(s > 1, 1 / (s - 1), s), 0.0), [0, 1, 2], [0, 1, -1]),
        (lambda g, s: select(s > 0, s, -math.inf), [-1.0, 1.0], [0, 1]),
        (lambda g, s: g.exp(select(s > 0, s * s, -math.inf)), [-1.0, 0.5], [0, math.exp(0.25)]),
        (lambda g, s: 2 * g.tanh(select(s > 0, s, -math.inf)), [-1.0], [0]),
        (lambda g, s: select(s > 0, 1 / s, 0) + select(s < 0, g.exp(1 / s), 0), [0, 1], [0, -1]),
        (lambda g, s: g.tanh(s) * select(s > 0, g.log(s), 0.0), [0.0], [0]),
    ],
)  # fmt: skip
def test_a_branch_that_is_not_taken_leaves_no_nan(
    score_mod: Callable[..., Any], at: list[float], slope: list[float]
) -> None:
    np.testing.assert_allclose(value(gradient(of(score_mod)), at), slope)


def test_the_gradient_of_the_score_itself_is_the_gradient() -> None:
    assert gradient(identity()) == Expression((Grad(),))
    assert gradient(of(lambda g, s: s + 3.0)) == Expression((Grad(),))


def test_a_function_without_the_score_has_the_gradient_zero() -> None:
    found = gradient(of(lambda g, s: g.to_float(g.gen_index(s, 3))))
    assert found == Expression((Constant(0.0, Score().type),))


def test_gradients_stay_small() -> None:
    """Linear in the function, however often a value is used."""

    def chain(graph: Any, score: Any) -> Any:
        for _ in range(30):
            score = select(score > 0, graph.tanh(score), score * score)
        return score

    forward = of(chain)
    assert len(gradient(forward).nodes) < 10 * len(forward.nodes)
    assert len(gradient(of(lambda g, s: softcap(s, 50.0))).nodes) <= 11


#: Functions that are defined, smooth enough and moderate everywhere.
UNARY: tuple[Callable[[Symbol], Symbol], ...] = (
    *(lambda x, name=name: apply(name, x) for name in ("sin", "cos", "tanh", "sigmoid", "neg")),
    lambda x: apply("softplus", x),
    lambda x: apply("exp", apply("sin", x)),
    lambda x: apply("rsqrt", x * x + 1.0),
    lambda x: apply("log", x * x + 1.0),
    lambda x: x * 0.5 - 1,
)
BINARY: tuple[Callable[[Symbol, Symbol], Symbol], ...] = (
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: apply("tanh", x) * y,
    lambda x, y: x / (y * y + 1.0),
    lambda x, y: select(apply("sin", x) > 2.0, y, x + 0.5 * y),
    lambda x, y: select(apply("sin", x) > -2.0, y * x, apply("log", y)),
)


@st.composite
def functions(draw: st.DrawFn) -> Callable[..., Symbol]:
    """A function of up to eight steps, each of earlier results."""
    steps = []
    for count in range(1, draw(st.integers(1, 8)) + 1):
        place = st.integers(0, count - 1)
        if draw(st.booleans()):
            steps.append((draw(st.sampled_from(UNARY)), (draw(place),)))
        else:
            steps.append((draw(st.sampled_from(BINARY)), (draw(place), draw(place))))

    def score_mod(graph: Any, score: Symbol) -> Symbol:
        values = [score]
        for step, places in steps:
            values.append(step(*(values[place] for place in places)))
        return apply("tanh", values[-1] * 0.1)

    return score_mod


@settings(max_examples=150, derandomize=True, deadline=None)
@given(functions())
def test_random_expressions_against_finite_differences(score_mod: Callable[..., Symbol]) -> None:
    expression, x, h = of(score_mod), np.array([-1.3, -0.4, 0.7, 1.1]), 1e-6
    expected = (value(expression, x + h) - value(expression, x - h)) / (2 * h)
    np.testing.assert_allclose(value(gradient(expression), x), expected, rtol=1e-4, atol=1e-5)
