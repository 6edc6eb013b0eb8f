"""The form of an expression that cuDNN accepts: of the same values, with full first operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sdpa_core import DType
from sdpa_core.cudnn.score_form import cudnn_form
from sdpa_core.cudnn.score_graph import lower_expression
from sdpa_core.score_mod import (
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
    Type,
    array_ops,
    evaluate,
    gradient,
    identity,
    select,
    trace,
)

SHAPE = (2, 3, 4, 5)
RNG = np.random.default_rng(0)
LEAVES = {
    Score(): RNG.standard_normal(SHAPE),
    Grad(): RNG.standard_normal(SHAPE),
    Scalar(0): np.float64(1.5),
    Tensor(0, DType.FLOAT32): RNG.random((1, 3, 1, 1)) + 0.5,
    Tensor(1, DType.INT32): np.arange(2).reshape(2, 1, 1, 1),
}
NUMPY = array_ops(np, lambda x: np.asarray(x, np.float64), lambda x: np.asarray(x, np.int32))
ARGS = (TensorArg(DType.FLOAT32, (1, 3, 1, 1)), TensorArg(DType.INT32, (2, 1, 1, 1)), ScalarArg())


def value(node: Node) -> Any:
    if isinstance(node, Constant):
        return np.asarray(node.value)
    if isinstance(node, Index):
        place = list(Axis).index(node.axis)
        return np.arange(SHAPE[place]).reshape([-1] + [1] * (3 - place))
    return LEAVES[node]  # type: ignore[index]


#: Each has an operand of a smaller shape where cuDNN wants one of the logits' shape.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "constant minus score": lambda g, s, x, n, a: 1 - s,
    "int minus int": lambda g, s, x, n, a: (3 - g.gen_index(s, 2)) * s,
    "constant over score": lambda g, s, x, n, a: 2 / (s * s + 1),
    "constant to the score": lambda g, s, x, n, a: 2**s,
    "tensor minus score": lambda g, s, x, n, a: x - s * x,
    "tensors only": lambda g, s, x, n, a: s + g.exp(x) * n,
    "scalars only": lambda g, s, x, n, a: s * (a + a),
    "comparisons": lambda g, s, x, n, a: select((s > 1) | (x > s) | (n > g.gen_index(s, 3)), s, 1),
    "a mask of tensors": lambda g, s, x, n, a: select((x > 1) & (n > 0), s, -math.inf),
    "selected constants": lambda g, s, x, n, a: s * select(s > 0, 1.0, 2.0),
    "selected tensor": lambda g, s, x, n, a: select(s > 0, x, s),
    "a fill from a tensor": lambda g, s, x, n, a: select(g.gen_index(s, 2) > n, s, x),
    "a result without score": lambda g, s, x, n, a: x + n,
}  # fmt: skip


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_form_has_the_same_values_and_full_first_operands(name: str, derived: bool) -> None:
    expression = trace(FUNCTIONS[name], ARGS).expression
    if derived:
        expression = gradient(expression)
    form = cudnn_form(expression)
    expected, found = (evaluate(each, NUMPY, value) for each in (expression, form))
    np.testing.assert_allclose(*(np.broadcast_to(each, SHAPE) for each in (found, expected)))
    full: list[bool] = []
    for node in form.nodes:
        if isinstance(node, Apply):
            assert full[node.operands[0]], node
            full.append(True)
        else:
            full.append(isinstance(node, Score | Grad | Index))


def test_what_cudnn_takes_stays() -> None:
    expression = trace(lambda g, s, x: g.tanh(s * 0.5) * 2 + x, ARGS[:1]).expression
    assert cudnn_form(expression) == expression


def test_a_gradient_mentions_the_incoming_one() -> None:
    """cuDNN refuses a backward pass whose dS has nothing to do with dP."""
    form = cudnn_form(gradient(trace(lambda g, s: g.floor(s)).expression), backward=True)
    assert Grad() in form.nodes
    np.testing.assert_array_equal(evaluate(form, NUMPY, value), np.zeros(SHAPE))


class FakeTensor:
    def set_data_type(self, data_type: Any) -> None:
        self.data_type = data_type


class FakeGraph:
    """Notes the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., FakeTensor]:
        def call(*args: Any, **kwargs: Any) -> FakeTensor:
            self.calls.append((name, args, kwargs))
            return FakeTensor()

        return call


CUDNN = SimpleNamespace(
    data_type=SimpleNamespace(FLOAT="FLOAT", INT32="INT32", BOOLEAN="BOOLEAN"),
    scalar_type=SimpleNamespace(COMPILE_TIME_CONST="constant"),
    backend_version=lambda: 92801,
)


def lowered(expression: Expression) -> tuple[FakeGraph, Any]:
    graph = FakeGraph()
    leaves = {Grad(): "grad"} if Grad() in expression.nodes else {}
    return graph, lower_expression(expression, graph, CUDNN, "score", leaves)  # type: ignore[arg-type]


def test_floats_are_rounded_to_float32() -> None:
    """Frontend 1.32 makes a DOUBLE of a float that float32 does not hold."""
    graph, _ = lowered(trace(lambda g, s: s * 0.1 + g.gen_index(s, 2) * 3).expression)
    values = [args[0] for name, args, _ in graph.calls if name == "tensor_scalar"]
    assert values == [float(np.float32(0.1)), 3]
    assert [type(each) for each in values] == [float, int]


def test_a_leaf_alone_is_copied() -> None:
    """A callback that returns what it was given makes no operation, which cuDNN refuses."""
    for expression, tensor in ((identity(), "score"), (gradient(identity()), "grad")):
        graph, _ = lowered(expression)
        assert graph.calls == [("identity", (), {"input": tensor})]


def test_results_have_their_types() -> None:
    graph, result = lowered(trace(lambda g, s: select(g.gen_index(s, 2) > 1, s, 0.0)).expression)
    assert [name for name, *_ in graph.calls].count("binary_select") == 1
    assert result.data_type == "FLOAT"


def test_ints_are_computed_as_ints() -> None:
    """In float32 cuDNN reads their bits as tiny numbers, and comparisons of them are wrong."""

    def score_mod(graph: Any, score: Any) -> Any:
        row = graph.gen_index(score, 2) + graph.gen_index(score, 3)
        return select(row > 1, score, 0.0) + select(score > 1, score, 0.0)

    graph, _ = lowered(trace(score_mod).expression)
    computed = [(name, kwargs.get("compute_data_type")) for name, _, kwargs in graph.calls]
    assert computed.count(("gen_index", "INT32")) == 2
    assert ("add", "INT32") in computed
    assert ("cmp_gt", "BOOLEAN") in computed
    assert ("cmp_gt", "FLOAT") in computed


@pytest.mark.parametrize("score_mod", [lambda g, s: 2**s, lambda g, s: (1 - s) ** 1.5])
def test_constants_are_spread_without_integer_arithmetic(score_mod: Callable[..., Any]) -> None:
    """cuDNN 9.19 misreads ``2.0 + float(0 * position)`` in the backward pass (H200)."""
    nodes = cudnn_form(trace(score_mod, ()).expression).nodes
    assert not any(isinstance(node, Apply) and node.type is Type.INT for node in nodes)
