"""Callbacks become expressions: what they compute, what makes them equal, what is refused."""

from __future__ import annotations

import math
import operator
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sdpa_core
from sdpa_core import Band, DType
from sdpa_core.alibi import alibi_slopes
from sdpa_core.fingerprint import render
from sdpa_core.score_mod import (
    OPS,
    Apply,
    Axis,
    Constant,
    Expression,
    Grad,
    Index,
    Node,
    Scalar,
    ScalarArg,
    Score,
    Tensor,
    TensorArg,
    Trace,
    alibi,
    array_ops,
    band,
    evaluate,
    every,
    identity,
    select,
    softcap,
    standard_slopes,
    substitute,
    trace,
    trace_bprop,
    where_visible,
)

SHAPE = (2, 3, 5, 7)
NUMPY = array_ops(np, lambda x: np.asarray(x, np.float64), lambda x: np.asarray(x, np.int32))
RNG = np.random.default_rng(0)
SCORES = RNG.standard_normal(SHAPE) * 3
Q, K = np.arange(5)[:, None], np.arange(7)


def value(expression: Expression, *tensors: Any, scalars: Any = (), grad: Any = None) -> Any:
    def leaf(node: Node) -> Any:
        match node:
            case Score():
                return SCORES
            case Grad():
                return grad
            case Index(axis):
                place = list(Axis).index(axis)
                return np.arange(SHAPE[place]).reshape([-1] + [1] * (3 - place))
            case Tensor(position):
                return tensors[position]
            case Scalar(position):
                return np.float64(scalars[position])
            case Constant(number):
                return np.asarray(number)
        raise AssertionError(node)

    return np.broadcast_to(evaluate(expression, NUMPY, leaf), SHAPE)


def of(score_mod: Callable[..., Any], *args: Any) -> Expression:
    return trace(score_mod, args).expression


# ------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("score_mod", "closed"),
    [
        (lambda g, s: s, lambda s: s),
        (lambda g, s: 2 * s + 1, lambda s: 2 * s + 1),
        (lambda g, s: 1 - s / 4, lambda s: 1 - s / 4),
        (lambda g, s: 3 / (1 + abs(s)) ** 1.5, lambda s: 3 / (1 + abs(s)) ** 1.5),
        (lambda g, s: 2**s, lambda s: 2**s),
        (lambda g, s: g.mul(a=g.tanh(input=g.div(s, 5)), b=5.0), lambda s: 5 * np.tanh(s / 5)),
        (lambda g, s: g.exp(-(s**2)), lambda s: np.exp(-s * s)),
        (lambda g, s: g.log(g.softplus(s)), lambda s: np.log(np.log1p(np.exp(s)))),
        (lambda g, s: g.sigmoid(s) + g.relu(s), lambda s: 1 / (1 + np.exp(-s)) + np.maximum(s, 0)),
        (lambda g, s: g.rsqrt(s * s + 1), lambda s: (s * s + 1) ** -0.5),
        (lambda g, s: g.sin(s) * g.cos(s) + g.tan(s), lambda s: np.sin(s) * np.cos(s) + np.tan(s)),
        (lambda g, s: g.floor(s) + g.ceil(input=s), lambda s: np.floor(s) + np.ceil(s)),
        (lambda g, s: g.max(s, 1) - g.min(s, -1), lambda s: np.maximum(s, 1) - np.minimum(s, -1)),
        (lambda g, s: g.reciprocal(g.sqrt(abs(s))), lambda s: abs(s) ** -0.5),
        (lambda g, s: g.gen_index(s, 1) * s, lambda s: np.arange(3)[:, None, None] * s),
        (
            lambda g, s: g.binary_select(s, -math.inf, g.gen_index(s, 2) >= g.gen_index(s, 3)),
            lambda s: np.where(Q >= K, s, -np.inf),
        ),
        (
            lambda g, s: g.binary_select(s, 0, (s > 1) | ~(s <= -1) & (s != 0) & (s < 4)),
            lambda s: np.where((s > 1) | ((s > -1) & (s != 0) & (s < 4)), s, 0),
        ),
        (
            lambda g, s: s - g.to_float(g.to_int(g.gen_index(s, 0) == 1)),
            lambda s: s - (np.arange(2) == 1).reshape(2, 1, 1, 1),
        ),
    ],
)  # fmt: skip
def test_an_expression_computes_what_the_callback_says(score_mod: Any, closed: Any) -> None:
    np.testing.assert_allclose(value(of(score_mod)), np.broadcast_to(closed(SCORES), SHAPE))


def test_arguments_are_tensors_and_scalars_by_position() -> None:
    args = (
        ScalarArg(),
        TensorArg(DType.FLOAT32, (1, 3, 1, 1)),
        ScalarArg(),
        TensorArg(DType.INT32, (7,)),
    )
    traced = trace(lambda g, s, a, x, b, n: a * s + x - b * n, args)
    assert (traced.tensors, traced.scalars) == ((1, 3), (0, 2))
    assert (traced.expression.tensors(), traced.expression.scalars()) == ((0, 1), (0, 1))
    x, n = RNG.standard_normal((1, 3, 1, 1)), np.arange(7)
    expected = 2.0 * SCORES + x - 0.5 * n
    np.testing.assert_allclose(value(traced.expression, x, n, scalars=(2.0, 0.5)), expected)


def test_what_is_not_used_is_not_in_the_expression() -> None:
    expression = of(lambda g, s, x: (g.exp(s), g.tanh(s))[1], TensorArg(DType.FLOAT32, (1,)))
    assert expression == of(lambda g, s: g.tanh(s))
    assert expression.tensors() == ()


def test_a_callback_written_for_cudnn_works() -> None:
    types = SimpleNamespace(
        INT32=SimpleNamespace(name="INT32"), BOOLEAN=SimpleNamespace(name="BOOLEAN")
    )

    def causal(graph: Any, score: Any, neg_inf: Any) -> Any:
        row = graph.gen_index(input=score, axis=2, name="row", compute_data_type=types.INT32)
        row.set_data_type(types.INT32)
        column = graph.gen_index(input=score, axis=3)
        column.set_data_type(types.INT32)
        mask = graph.cmp_ge(input=row, comparison=column, compute_data_type=types.BOOLEAN)
        mask.set_data_type(types.BOOLEAN)
        return graph.binary_select(input0=score, input1=neg_inf, mask=mask, name="out")

    expression = of(causal, ScalarArg())
    np.testing.assert_array_equal(
        value(expression, scalars=(-1e9,)), np.where(Q >= K, SCORES, -1e9)
    )
    with pytest.raises(TypeError, match="data type BOOLEAN, expected INT32"):
        of(lambda g, s: g.gen_index(s, 2).set_data_type(types.BOOLEAN) * s)


def test_bprop_gets_the_gradient_and_the_score() -> None:
    grad = RNG.standard_normal(SHAPE)
    expression = trace_bprop(lambda g, d, s, c: d * s * c, [ScalarArg()]).expression
    np.testing.assert_allclose(value(expression, grad=grad, scalars=(2.0,)), grad * SCORES * 2)


# --------------------------------------------------------------------------------------- keys


def scaled(factor: float) -> Callable[..., Any]:
    return lambda graph, score: score * factor


def test_equal_computations_are_equal() -> None:
    assert of(scaled(2.0)) == of(scaled(2.0)) == of(lambda g, s: g.mul(s, g.constant(2.0)))
    assert hash(of(scaled(2.0))) == hash(of(scaled(2.0)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scaled(2.0), scaled(3.0)),
        (lambda g, s: s + 2.0, lambda g, s: s - 2.0),
        (lambda g, s: g.gen_index(s, 2) * s, lambda g, s: g.gen_index(s, 3) * s),
        (lambda g, s: select(s > 1, 1.0, s), lambda g, s: select(s > 1, s, 1.0)),
        (lambda g, s: s / g.gen_index(s, 2), lambda g, s: g.gen_index(s, 2) / s),
    ],
)  # fmt: skip
def test_different_computations_differ(one: Any, other: Any) -> None:
    assert of(one) != of(other)
    assert render(of(one)) != render(of(other))


def test_one_constant_of_two_types_is_two_constants() -> None:
    trace_ = Trace()
    as_int, as_float = trace_.constant(1), trace_.constant(1.0)
    assert as_int.index != as_float.index
    assert trace_.constant(np.float32(1)).index == as_float.index
    assert trace_.constant(np.int64(1)).index == as_int.index


def test_the_order_in_which_a_callback_computes_does_not_matter() -> None:
    def late(graph: Any, score: Any) -> Any:
        column = graph.gen_index(score, 3)
        row = graph.gen_index(score, 2)
        return graph.binary_select(score, 0.0, row >= column)

    def early(graph: Any, score: Any) -> Any:
        row = graph.gen_index(score, 2)
        column = graph.gen_index(score, 3)
        return graph.binary_select(score, 0.0, row >= column)

    assert of(late) == of(early)


def test_shared_values_are_one_node() -> None:
    def doubled(graph: Any, score: Any) -> Any:
        for _ in range(50):
            score = score + score
        return score

    assert len(of(doubled).nodes) == 51


#: Printed by other processes, whose hashes are salted in another way.
STABLE = """
import math
from sdpa_core.fingerprint import render
from sdpa_core.score_mod import gradient, select, softcap, trace
def f(g, s):
    return select(g.gen_index(s, 2) >= g.gen_index(s, 3), softcap(s, 30.0), -math.inf)
expression = trace(f).expression
print(render((expression, gradient(expression))))
"""


def test_the_rendering_is_stable_across_processes() -> None:
    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        environment["PYTHONPATH"] = str(Path(sdpa_core.__file__).parents[1])
        command = [sys.executable, "-c", STABLE]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert run("1") == run("2") != ""
    assert "value=-inf" in run("1")


# ----------------------------------------------------------------------------- simplifications


@pytest.mark.parametrize(
    "score_mod",
    [
        lambda g, s: s * 1 + 0,
        lambda g, s: 0.0 + 1.0 * s,
        lambda g, s: s / 1 - 0,
        lambda g, s: s**1,
        lambda g, s: g.neg(-s),
        lambda g, s: g.max(s, s),
        lambda g, s: g.binary_select(s, 0.0, g.constant(True)),
        lambda g, s: g.binary_select(s, s, s > 1),
        lambda g, s: g.binary_select(s, 0.0, (s > 1) | True),
        lambda g, s: g.to_float(s),
        lambda g, s: g.identity(s, name="out"),
    ],
)
def test_trivia_drop_out(score_mod: Any) -> None:
    assert of(score_mod) == identity() == Expression((Score(),))


def test_constants_fold() -> None:
    assert of(lambda g, s: s * (g.exp(g.constant(0.0)) + 1)) == of(lambda g, s: s * 2.0)
    assert of(lambda g, s: s * g.constant(3) / 1) == of(lambda g, s: s * 3.0)


def test_what_is_infinite_or_undefined_does_not_fold() -> None:
    """It stays for the device to compute; and a product with 0 is NaN for an infinite score."""
    for score_mod in (
        lambda g, s: s * 0,
        lambda g, s: s + g.log(g.constant(0.0)),
        lambda g, s: s + g.exp(g.constant(1e4)),
        lambda g, s: s + g.constant(2**31 - 1) * 2 * g.gen_index(s, 3),
    ):
        assert any(isinstance(node, Apply) for node in of(score_mod).nodes)


# --------------------------------------------------------------------------------- composition


def test_softcap_alibi_and_masks_compose() -> None:
    t = Trace()
    slopes = RNG.random((1, 3, 1, 1))
    lengths = np.array([4, 7]).reshape(2, 1, 1, 1)
    result = alibi(softcap(t.score, 20.0), t.tensor(0, DType.FLOAT32), t.key - t.query - 2)
    within = t.key < t.tensor(1, DType.INT32)
    visible = every(band(t.key - t.query - 2, Band(left=1, right=2)), within)  # type: ignore[arg-type]
    expression = t.expression(where_visible(visible, result))
    expected = 20 * np.tanh(SCORES / 20) - slopes * abs(Q + 2 - K)
    seen = (Q + 2 - 1 <= K) & (Q + 2 + 2 >= K) & (lengths > K)
    np.testing.assert_allclose(
        value(expression, slopes, lengths), np.where(seen, expected, -np.inf)
    )


def test_nothing_to_hide_is_no_mask() -> None:
    t = Trace()
    assert band(t.key - t.query, Band()) is None
    assert every() is None
    assert where_visible(None, t.score).index == t.score.index


def test_substitution_is_composition() -> None:
    args = (TensorArg(DType.FLOAT32, (1,)), ScalarArg())
    inner = of(lambda g, s, x, a: s * x + a, *args)
    outer = of(lambda g, s, x, a: g.tanh(s - a) * x, *args)
    both = substitute(outer, inner, first_tensor=1, first_scalar=1)
    expected = np.tanh(SCORES * 3.0 + 0.5 - 0.25) * 2.0
    np.testing.assert_allclose(value(both, 3.0, 2.0, scalars=(0.5, 0.25)), expected)
    assert substitute(identity(), inner) == inner == substitute(inner, identity())


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("score_mod", "message"),
    [
        (lambda g, s: s + (s > 0), "add: operand b is bool"),
        (lambda g, s: g.exp(s > 0), "exp: operand input is bool"),
        (lambda g, s: g.binary_select(s, 0.0, s), "binary_select: operand mask is float32"),
        (lambda g, s: g.binary_select(s > 1, s, s > 1), "binary_select: operand input0 is bool"),
        (lambda g, s: s & (s > 1), "logical_and: operand a is float32"),
        (lambda g, s: g.logical_not(g.gen_index(s, 2)), "logical_not: operand input is int32"),
        (lambda g, s: g.to_int(s), "to_int: operand input is float32"),
        (lambda g, s: s > 0, "score_mod returned bool values; expected float32"),
        (lambda g, s: g.gen_index(s, 2), "score_mod returned int32 values"),
        (lambda g, s: None, "score_mod returned NoneType"),
        (lambda g, s: 1.0, "score_mod returned float"),
        (lambda g, s: s if s > 0 else -s, "use graph.binary_select"),
        (lambda g, s: float(s), "has no value"),
        (lambda g, s: math.tanh(s), "^score_mod: a traced score has no value.* use .*graph.tanh"),
        (lambda g, s: round(s), "^score_mod: a traced score has no value"),
        (lambda g, s: np.tanh(s), "^score_mod: numpy.tanh takes no traced score; use graph.tanh$"),
        (lambda g, s: np.abs(s), "numpy.absolute takes no traced score; use graph.abs$"),
        (lambda g, s: np.where(s > 0, s, 0), "numpy.where takes .*; use graph.binary_select$"),
        (lambda g, s: np.sinh(s), "numpy.sinh takes no traced score; graph has no sinh"),
        (lambda g, s: np.add.reduce(s), "numpy.add takes no traced score"),
        (lambda g, s: np.add(s, 1.0, dtype=np.float64), "numpy.add takes no traced score"),
        (lambda g, s: np.ones(3) < s, "ndarray is no operand"),
        (lambda g, s: s * np.complex64(1), "complex64 is no operand"),
        (lambda g, s: list(s), "has no value"),
        (lambda g, s: s[0], "has no value"),
        (lambda g, s: s == None, "NoneType is no operand of score_mod"),  # noqa: E711
        (lambda g, s: s + np.ones(3), "ndarray is no operand of score_mod; pass arrays"),
        (lambda g, s: np.ones(3) * s, "ndarray is no operand"),
        (lambda g, s: s + "1", "str is no operand"),
        (lambda g, s: g.add(s), r"add takes \(a, b\)"),
        (lambda g, s: g.add(s, s, s), r"add takes \(a, b\)"),
        (lambda g, s: g.add(s, a=s), r"add takes \(a, b\)"),
        (lambda g, s: g.tanh(inputs=s), r"tanh takes \(input\)"),
        (lambda g, s: {s}, "unhashable"),
    ],
)
def test_mistakes_are_named(score_mod: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        of(score_mod)


@pytest.mark.parametrize(
    ("score_mod", "message"),
    [
        (lambda g, s: s + math.nan, "NaN"),
        (lambda g, s: s - 1e300, "does not fit float32; for a logit that gets no weight use -inf"),
        (lambda g, s: s * 2**31, "does not fit int32"),
        (lambda g, s: g.gen_index(s, 4) * s, "gen_index: axis = 4"),
        (lambda g, s: g.gen_index(s, True) * s, "gen_index: axis = True"),
    ],
)
def test_values_that_cannot_be_are_named(score_mod: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of(score_mod)


@pytest.mark.parametrize("dtype", [DType.FLOAT64, DType.INT64, DType.UINT8, DType.BOOL])
def test_tensors_that_cudnn_cannot_read_are_refused(dtype: DType) -> None:
    with pytest.raises(TypeError, match=f"auxiliary tensor of score_mod is {dtype}"):
        of(lambda g, s, x: s + x, TensorArg(dtype, (1, 1, 1, 1)))


def test_a_value_of_another_call_is_refused() -> None:
    kept: list[Any] = []
    of(lambda g, s: kept.append(s) or s)
    with pytest.raises(TypeError, match="add: a value of another call"):
        of(lambda g, s: s + kept[0])
    with pytest.raises(TypeError, match="score_mod returned a value of another call"):
        of(lambda g, s: kept[0])


def test_what_the_callback_raises_is_not_wrapped() -> None:
    class OwnError(Exception):
        pass

    def failing(graph: Any, score: Any) -> Any:
        raise OwnError("mine")

    with pytest.raises(OwnError, match=r"^mine$"):
        of(failing)
    with pytest.raises(AttributeError, match="erf"):
        of(lambda g, s: g.erf(s))


def test_expressions_made_by_hand_are_checked() -> None:
    with pytest.raises(TypeError, match="float32"):
        Expression((Index(Axis.KEY),))
    with pytest.raises(ValueError, match="refers to a later node"):
        Expression((Score(), Apply("exp", (1,), Score().type)))


def test_every_operation_has_a_method_and_a_value() -> None:
    graph_methods = {name for name in dir(sdpa_core.score_mod.Graph) if not name.startswith("_")}
    assert set(OPS) <= graph_methods
    assert set(OPS) == set(NUMPY)


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 13, 64])
def test_standard_slopes_are_the_table_s(heads: int) -> None:
    t = Trace()
    expression = t.expression(t.score * standard_slopes(t.head, heads))

    def leaf(node: Any) -> Any:
        return (
            np.arange(heads) if isinstance(node, Index) else np.asarray(getattr(node, "value", 1.0))
        )

    ops = array_ops(np, lambda x: np.asarray(x, float), lambda x: np.asarray(x, int))
    np.testing.assert_allclose(
        np.broadcast_to(evaluate(expression, ops, leaf), heads), alibi_slopes(heads), rtol=1e-12
    )


ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize("op", ARITHMETIC + COMPARISONS)
@pytest.mark.parametrize("number", [np.float32(2), np.float64(2), np.int64(2)])
def test_operators_of_numpy_numbers_are_those_of_symbols(op: Any, number: Any) -> None:
    found = value(of(lambda g, s: g.to_float(op(number, g.abs(s)))))
    np.testing.assert_allclose(found, op(2, abs(SCORES)))
    found = value(of(lambda g, s: g.to_float(op(g.abs(s), number))))
    np.testing.assert_allclose(found, op(abs(SCORES), 2))


@pytest.mark.parametrize("op", [operator.and_, operator.or_])
def test_operators_of_numpy_bools_are_those_of_symbols(op: Any) -> None:
    ours = of(lambda g, s: g.to_float(op(True, s > 0)))
    assert of(lambda g, s: g.to_float(op(np.bool_(True), s > 0))) == ours


@pytest.mark.parametrize("number", [np.bool_(True), np.float32(0.5), np.int64(3), np.asarray(2.0)])
def test_numpy_numbers_count_by_value(number: Any) -> None:
    python = number.item()

    def with_it(graph: Any, score: Any, it: Any) -> Any:
        if isinstance(python, bool):
            return graph.binary_select(score, 0.0, graph.logical_and(score > 0, it))
        return score * it

    def of_this(it: Any) -> Any:
        return trace(lambda graph, score: with_it(graph, score, it), ()).expression

    if isinstance(number, np.ndarray):
        with pytest.raises(TypeError, match="score_mod_args"):
            of_this(number)
    else:
        assert of_this(number) == of_this(python)
