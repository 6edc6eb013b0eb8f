"""cuDNN plans expressions inside ``score_mod`` and ``score_mod_bprop``, without a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sdpa_core import DeviceSpec, DType
from sdpa_core.cudnn import session
from sdpa_core.cudnn.lower import data_type
from sdpa_core.cudnn.score_graph import lower_expression
from sdpa_core.layout import row_major
from sdpa_core.score_mod import (
    OPS,
    Grad,
    Scalar,
    ScalarArg,
    Tensor,
    TensorArg,
    gradient,
    select,
    softcap,
    trace,
)
from sdpa_core.score_mod.trace import Arg

B, H, S, D = 2, 4, 256, 64
ONE = (1, 1, 1, 1)
EVERY_GPU = ("a100", "h200", "b200", "rtx5090")


class Plan:
    """An attention graph with a function of the logits, planned for a GPU that is not here."""

    def __init__(self, device: str, score_mod: Callable[..., Any], *args: Arg) -> None:
        self.cudnn = session.frontend()
        self.spec = DeviceSpec.named(device)
        self.forward = trace(score_mod, args).expression
        self.backward = gradient(self.forward)
        self.args = args

    def _tensor(self, graph: Any, uid: int, shape: tuple[int, ...], dtype: DType, **kw: Any) -> Any:
        return graph.tensor(
            name=f"t{uid}",
            uid=uid,
            dim=list(shape),
            stride=list(row_major(shape)),
            data_type=data_type(self.cudnn, dtype),
            **kw,
        )

    def _leaves(self, graph: Any) -> dict[Any, Any]:
        leaves: dict[Any, Any] = {}
        tensors = [arg for arg in self.args if isinstance(arg, TensorArg)]
        for i, arg in enumerate(tensors):
            leaf = Tensor(i, arg.dtype)
            leaves[leaf] = self._tensor(graph, 1000 + i, arg.shape, arg.dtype)
        for i in range(len(self.args) - len(tensors)):
            scalar = self._tensor(graph, 3000 + i, ONE, DType.FLOAT32, is_pass_by_value=True)
            leaves[Scalar(i)] = scalar
        return leaves

    def _graph(self) -> tuple[Any, dict[str, Any]]:
        types = self.cudnn.data_type
        graph = self.cudnn.pygraph(
            io_data_type=types.BFLOAT16,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            sm_version=self.spec.sm,
            device_property=session._device_properties(self.spec),
        )
        shape = (B, H, S, D)
        inputs = {
            name: self._tensor(graph, uid, shape, DType.BFLOAT16)
            for uid, name in enumerate("qkv", 1)
        }
        scale = self._tensor(graph, 100, ONE, DType.FLOAT32, is_pass_by_value=True)
        return graph, {**inputs, "attn_scale": scale}

    def build_forward(self) -> bytes:
        graph, inputs = self._graph()
        leaves = self._leaves(graph)

        def score_mod(inner: Any, score: Any) -> Any:
            return lower_expression(self.forward, inner, self.cudnn, score, leaves)

        output, stats = graph.sdpa(**inputs, generate_stats=True, score_mod=score_mod)
        stats.set_uid(5).set_output(True).set_data_type(self.cudnn.data_type.FLOAT)
        return self._build(graph, {4: output})

    def build_backward(self) -> bytes:
        graph, inputs = self._graph()
        leaves = self._leaves(graph)
        kept: list[Any] = []

        def score_mod(inner: Any, score: Any) -> Any:
            kept.append(score)
            return lower_expression(self.forward, inner, self.cudnn, score, leaves)

        def score_mod_bprop(inner: Any, grad: Any) -> Any:
            named = {**leaves, Grad(): grad}
            return lower_expression(self.backward, inner, self.cudnn, kept[-1], named)

        shape = (B, H, S, D)
        for uid, name in ((4, "o"), (6, "dO")):
            inputs[name] = self._tensor(graph, uid, shape, DType.BFLOAT16)
        inputs["stats"] = self._tensor(graph, 5, (B, H, S, 1), DType.FLOAT32)
        results = graph.sdpa_backward(
            **inputs, score_mod=score_mod, score_mod_bprop=score_mod_bprop
        )
        return self._build(graph, dict(enumerate(results, 7)))

    def _build(self, graph: Any, results: dict[int, Any]) -> bytes:
        for uid, tensor in results.items():
            tensor.set_uid(uid).set_output(True).set_dim([B, H, S, D])
            tensor.set_stride(list(row_major((B, H, S, D))))
            tensor.set_data_type(self.cudnn.data_type.BFLOAT16)
        graph.deselect_engines(["sdpa_fwd_", "sdpa_bwd_"])
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([self.cudnn.heur_mode.A])
        graph.check_support()
        session._build_first(graph, self.cudnn, None)
        return bytes(graph.serialize())


def causal_softcap(graph: Any, score: Any) -> Any:
    visible = graph.gen_index(score, 2) >= graph.gen_index(score, 3)
    return select(visible, softcap(score, 50.0), -math.inf)


def tanh_chain(graph: Any, score: Any) -> Any:
    for _ in range(3):
        score = 1 - 2 * graph.tanh(score / 3)
    return score


def with_bias(graph: Any, score: Any, bias: Any, slopes: Any, weight: Any) -> Any:
    distance = abs(graph.gen_index(score, 2) - graph.gen_index(score, 3))
    return score * weight + bias - slopes * distance


BIAS = (
    TensorArg(DType.BFLOAT16, (B, H, S, S)),
    TensorArg(DType.FLOAT32, (1, H, 1, 1)),
    ScalarArg(),
)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("score_mod", "args"), [(causal_softcap, ()), (tanh_chain, ()), (with_bias, BIAS)]
)
@pytest.mark.parametrize("device", EVERY_GPU)
def test_every_gpu(device: str, score_mod: Any, args: tuple[Arg, ...], direction: str) -> None:
    assert getattr(Plan(device, score_mod, *args), f"build_{direction}")()


#: Each operation with the score, and where it has two operands, with a constant in front.
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: lambda g, s, name=name: getattr(g, name)(s * s) for name in OPS},
    **{
        name: lambda g, s, name=name: getattr(g, name)(s, 2.0) + getattr(g, name)(2.0, s * s)
        for name in ("add", "sub", "mul", "div", "pow", "max", "min")
    },
    **{
        name: lambda g, s, name=name: select(
            getattr(g, name)(s, 1) & getattr(g, name)(g.gen_index(s, 2), g.gen_index(s, 3)), s, 2.0
        )
        for name in ("cmp_eq", "cmp_neq", "cmp_lt", "cmp_le", "cmp_gt", "cmp_ge")
    },
    "logical_and": lambda g, s: select((s > 0) & (g.gen_index(s, 1) > 1), s, 0.0),
    "logical_or": lambda g, s: select((s > 0) | (g.gen_index(s, 0) > 0), 0.0, s),
    "logical_not": lambda g, s: select(~(s > 0), s, -s),
    "binary_select": lambda g, s: s * select(s > 0, 1.0, 2.0),
    "to_float": lambda g, s: s * g.to_float(s > 0) + g.gen_index(s, 2),
    "to_int": lambda g, s: s * (g.to_int(s > 0) + g.gen_index(s, 2)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", OPS)
def test_every_operation(name: str, direction: str) -> None:
    assert getattr(Plan("h200", OPERATIONS[name]), f"build_{direction}")()


SHAPES = [(1, 1, 1, 1), (B, 1, 1, 1), (1, H, 1, 1), (1, 1, 1, S), (B, 1, S, 1), (1, 1, S, S)]


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *((DType.FLOAT32, shape) for shape in SHAPES),
        *((dtype, (B, 1, S, 1)) for dtype in (DType.FLOAT16, DType.BFLOAT16, DType.INT32)),
    ],
)
def test_tensors_of_every_shape(dtype: DType, shape: tuple[int, ...], direction: str) -> None:
    """Read twice, first where cuDNN wants the logits' shape, and as the fill of a mask."""

    def score_mod(graph: Any, score: Any, x: Any) -> Any:
        visible = graph.gen_index(score, 2) >= graph.gen_index(score, 3)
        return select(visible, x - score * x, x)

    assert getattr(Plan("h200", score_mod, TensorArg(dtype, shape)), f"build_{direction}")()


@pytest.mark.parametrize("shape", [(B, 1, 1, 1), (B, 1, S, 1)])
@pytest.mark.parametrize("device", ["a100", "rtx5090"])
def test_tensors_that_the_backward_pass_refuses(device: str, shape: tuple[int, ...]) -> None:
    """One value for all heads and keys, on compute capability 8.0 and 12.0."""
    plan = Plan(device, lambda graph, score, x: score + x, TensorArg(DType.FLOAT32, shape))
    assert plan.build_forward()
    with pytest.raises(session.frontend().cudnnGraphNotSupportedError):
        plan.build_backward()


def test_constants_are_in_the_plan() -> None:
    """Nothing is to be given at launch but the operands: the numbers are part of the kernel."""
    one, other = (
        Plan("h200", lambda g, s, c=c: softcap(s, c)).build_forward() for c in (50.0, 30.0)
    )
    assert (b"pass_by_values{}" in one) == (session.cudnn_version() >= 92200)
    assert one != other


def test_the_score_itself_needs_no_function_but_builds() -> None:
    plan = Plan("h200", lambda graph, score: score)
    assert plan.build_forward()
    assert plan.build_backward()
