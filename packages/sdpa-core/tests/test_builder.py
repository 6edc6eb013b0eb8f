"""The graph of each feature: which operands and options cuDNN is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sdpa_core import Alignment, AttentionProblem, Band, DeviceSpec, Direction, DType, TensorSpec
from sdpa_core.cudnn.builder import describe
from sdpa_core.cudnn.graph import Derived, GraphSpec, OperandKind, Rule
from sdpa_core.cudnn.memory import kept
from sdpa_core.logits import ScoreMod
from sdpa_core.paged import Paged
from sdpa_core.problem import Softmax
from sdpa_core.score_mod import Trace, evaluate
from sdpa_core.score_mod.expression import Axis, Constant, Grad, Index, Node, Score, Tensor

MakeProblem = Callable[..., AttentionProblem]

H200 = DeviceSpec.named("h200", cudnn_version=91900)
FORWARD, BACKWARD = Direction
BF16, F32, I32 = DType.BFLOAT16, DType.FLOAT32, DType.INT32
BIAS = TensorSpec.dense((1, 4, 1, 128), BF16)
BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)


def shapes(graph: GraphSpec, *roles: str) -> list[tuple[int, ...]]:
    return [graph.operand(role).shape for role in roles]


def test_bias_keeps_its_broadcast_axes(make_problem: MakeProblem) -> None:
    bias = TensorSpec.dense((1, 4, 128, 128), BF16)
    problem = make_problem(bias=bias, bias_grad=True)
    assert describe(problem, H200, FORWARD).operand("bias").spec == bias
    graph = describe(problem, H200, BACKWARD)
    assert shapes(graph, "bias", "grad_bias") == [bias.shape] * 2
    assert graph.operand("grad_bias").kind is OperandKind.OUTPUT


@pytest.mark.parametrize("softcap", [None, 30.0])
def test_a_bias_of_one_row_is_declared_with_stride_0(
    make_problem: MakeProblem, softcap: float | None
) -> None:
    """H200, cuDNN 9.19: with one declared row all gradients are wrong."""
    problem = make_problem(bias=BIAS, softcap=softcap)
    for direction in Direction:
        bias = describe(problem, H200, direction).operand("bias")
        assert bias.shape == (1, 4, 128, 128)
        assert bias.strides[1:] == (128, 0, 1)
        assert bias.extent == problem.bias.nbytes  # type: ignore[union-attr]


def test_the_gradient_of_one_row_comes_for_every_row(make_problem: MakeProblem) -> None:
    problem = make_problem(bias=BIAS, bias_grad=True)
    graph = describe(problem, H200, BACKWARD)
    assert graph.operand("grad_bias").spec == TensorSpec.dense((1, 4, 128, 128), BF16)


def test_a_bias_gradient_is_built_only_when_asked_for(make_problem: MakeProblem) -> None:
    """Loses kernels otherwise (TransformerEngine issue 3082)."""
    assert not describe(make_problem(bias=BIAS), H200, BACKWARD).has("grad_bias")
    inference = make_problem(bias=BIAS, bias_grad=True, training=False)
    assert inference.gradients == ("grad_query", "grad_key", "grad_value")


def test_sinks(make_problem: MakeProblem) -> None:
    learnable = make_problem(softmax=Softmax.LEARNABLE, sink_grad=True)
    graph = describe(learnable, H200, BACKWARD)
    assert shapes(graph, "sink", "grad_sink") == [(1, 4, 1, 1)] * 2
    assert {graph.operand(role).dtype for role in ("sink", "grad_sink")} == {F32}
    one = describe(make_problem(softmax=Softmax.OFF_BY_ONE), H200, FORWARD)
    assert one.operand("sink").constant == 0.0
    assert "sink" not in make_problem(softmax=Softmax.OFF_BY_ONE).inputs


@pytest.mark.parametrize("direction", list(Direction))
def test_one_query_with_a_sink_is_declared_as_two(
    make_problem: MakeProblem, direction: Direction
) -> None:
    problem = make_problem(sq=1, softmax=Softmax.LEARNABLE)
    graph = describe(problem, H200, direction)
    assert shapes(graph, "query", "output", "stats") == [
        (2, 4, 2, 64),
        (2, 4, 2, 64),
        (2, 4, 2, 1),
    ]
    result = "output" if direction is FORWARD else "grad_query"
    assert kept(graph.operand(result), problem) == (2, 1)


def test_the_second_row_has_no_part_in_the_alignment(make_problem: MakeProblem) -> None:
    """One query, the last of the sequence: lengths and distances count it alone."""
    sink = {"sq": 1, "softmax": Softmax.LEARNABLE, "band": BOTTOM_RIGHT}
    graph = describe(make_problem(seq_lens_kv=True, **sink), H200, FORWARD)
    assert graph.operand("seq_len_q").constant == 1
    slopes = TensorSpec.dense((1, 4, 1, 1), F32)
    graph = describe(make_problem(alibi_slopes=slopes, **sink), H200, FORWARD)
    assert value(graph, score=1.0, i=0, j=127, alibi_slopes=0.5) == 1.0


def test_dropout_reads_seed_and_offset_from_the_device(make_problem: MakeProblem) -> None:
    problem = make_problem(dropout_p=0.25)
    for direction in Direction:
        graph = describe(problem, H200, direction)
        assert dict(graph.options)["dropout_p"] == 0.25
        assert {graph.operand(f"dropout_{name}").dtype for name in ("seed", "offset")} == {
            DType.INT64
        }
    assert problem.inputs[-2:] == ("dropout_seed", "dropout_offset")


def test_lengths_switch_on_the_padding_mask(make_problem: MakeProblem) -> None:
    """A side whose lengths are not given has full ones: cuDNN takes both or none."""
    graph = describe(make_problem(seq_lens_kv=True), H200, FORWARD)
    assert dict(graph.options)["use_padding_mask"] is True
    assert graph.operand("seq_len_kv").derived == Derived(Rule.LENGTHS, "seq_lens_kv")
    assert graph.operand("seq_len_q").constant == 128


def test_max_logit_is_a_result_of_the_forward_pass(make_problem: MakeProblem) -> None:
    problem = make_problem(return_max_logit=True)
    assert shapes(describe(problem, H200, FORWARD), "max_logit") == [(2, 4, 128, 1)]
    assert problem.results == ("output", "stats", "max_logit")
    assert not describe(problem, H200, BACKWARD).has("max_logit")


def test_pages_have_a_table_for_each_pool_with_its_own_stride() -> None:
    """The width of a table in memory is its tensor's (flashinfer PR 4270: 63 columns, not 62)."""
    table, wide = TensorSpec((2, 63), (63, 1), I32), TensorSpec((2, 63), (64, 1), I32)
    pool = TensorSpec.dense((130, 2, 16, 64), BF16)
    query = TensorSpec.dense((2, 4, 1, 64), BF16)
    problem = AttentionProblem.of(query, pool, pool, paged=Paged(table, wide, 1000))
    graph = describe(problem, H200, FORWARD)
    assert shapes(graph, "page_table_k", "key") == [(2, 1, 63, 1), (130, 2, 16, 64)]
    strides = [graph.operand(f"page_table_{side}").strides for side in "kv"]
    assert [s[0] for s in strides] == [63, 64]
    assert dict(graph.options)["paged_attention_max_seq_len_kv"] == 1000
    assert problem.inputs[3:] == ("seq_lens_kv", "page_table_k", "page_table_v")
    assert graph.operand("seq_len_q").constant == 1


def value(
    graph: GraphSpec, *, score: float, i: int, j: int, grad: float | None = None, **tensors: float
) -> float:
    """A function of the logits at one place."""
    expression = graph.score_mod if grad is None else graph.score_mod_gradient
    assert expression is not None

    def leaf(node: Node) -> object:
        match node:
            case Score():
                return score
            case Grad():
                return grad
            case Index(Axis.QUERY):
                return i
            case Index(Axis.KEY):
                return j
            case Tensor(position):
                return tensors[graph.score_mod_tensors[position]]
            case Constant(number):
                return number
        raise AssertionError(node)

    from sdpa_core.score_mod.ops import OPS

    return float(evaluate(expression, {name: op.fold for name, op in OPS.items()}, leaf))


def test_a_softcap_is_a_function_with_the_masks_inside(make_problem: MakeProblem) -> None:
    graph = describe(make_problem(softcap=2.0, band=Band(1, 0), seq_lens_kv=True), H200, BACKWARD)
    assert dict(graph.options).keys() <= {"use_deterministic_algorithm"}
    at = {"score": 3.0, "seq_len_q": 128, "seq_len_kv": 5}
    capped = 2.0 * 0.9051482536448664  # tanh(1.5)
    assert value(graph, i=4, j=4, **at) == pytest.approx(capped)
    assert value(graph, i=4, j=3, **at) == pytest.approx(capped)
    hidden = [{"i": 4, "j": 5}, {"i": 4, "j": 2}, {"i": 6, "j": 6}]
    assert [value(graph, **at, **where) for where in hidden] == [float("-inf")] * 3
    assert value(graph, i=4, j=4, grad=0.5, **at) == pytest.approx(0.5 * (1 - (capped / 2) ** 2))
    # The incoming gradient of a hidden logit is 0, because its probability is.
    assert [value(graph, grad=0.0, **at, **where) for where in hidden] == [0.0] * 3


def test_bottom_right_inside_a_function_follows_the_lengths(make_problem: MakeProblem) -> None:
    graph = describe(
        make_problem(softcap=50.0, band=BOTTOM_RIGHT, seq_lens_q=True, seq_lens_kv=True),
        H200,
        FORWARD,
    )
    at = {"score": 0.0, "seq_len_q": 3, "seq_len_kv": 10}
    assert value(graph, i=0, j=7, **at) == 0.0
    assert value(graph, i=0, j=8, **at) == float("-inf")


@pytest.mark.parametrize(("alignment", "shift"), [("top_left", 0), ("bottom_right", 72)])
@pytest.mark.parametrize("causal", [True, False])
def test_slopes_measure_from_the_band_s_diagonal(
    make_problem: MakeProblem, alignment: str, shift: int, causal: bool
) -> None:
    slopes = TensorSpec.dense((1, 4, 1, 1), F32)
    band = Band(None, 0 if causal else None, Alignment(alignment))
    problem = make_problem(sq=128, skv=200, alibi_slopes=slopes, band=band)
    graph = describe(problem, H200, FORWARD)
    assert value(graph, score=1.0, i=10, j=4, alibi_slopes=0.5) == 1 - 0.5 * (10 + shift - 4)


def test_a_function_and_a_softcap_are_chained(make_problem: MakeProblem) -> None:
    """softcap, then score_mod, then bias; the gradient goes back through both."""
    trace = Trace()
    square = ScoreMod(trace.expression(trace.score * trace.score))
    problem = replace(make_problem(softcap=2.0, bias=BIAS), score_mod=square)
    graph = describe(problem, H200, BACKWARD)
    tanh = 0.9051482536448664
    assert value(graph, score=3.0, i=0, j=0, bias=0.25) == pytest.approx(4 * tanh**2 + 0.25)
    expected = 2 * (2 * tanh) * (1 - tanh**2)
    assert value(graph, score=3.0, i=0, j=0, grad=1.0, bias=0.25) == pytest.approx(expected)


def test_a_given_gradient_takes_the_place_of_the_derived_one(make_problem: MakeProblem) -> None:
    trace = Trace()
    given = ScoreMod(
        trace.expression(trace.score * 2.0), gradient=trace.expression(trace.grad * 7.0)
    )
    graph = describe(replace(make_problem(), score_mod=given), H200, BACKWARD)
    assert value(graph, score=3.0, i=0, j=0, grad=1.0) == 7.0


def test_auxiliary_tensors_and_scalars_are_counted(make_problem: MakeProblem) -> None:
    trace = Trace()
    first, second = trace.tensor(0, F32), trace.tensor(1, I32)
    expression = trace.expression(trace.score * trace.scalar(0) + first * second)
    tensors = (TensorSpec.dense((1, 4, 1, 1), F32), TensorSpec.dense((1, 1, 128, 128), I32))
    problem = replace(make_problem(), score_mod=ScoreMod(expression, None, tensors, scalars=1))
    graph = describe(problem, H200, FORWARD)
    assert problem.inputs[3:] == ("score_mod_0", "score_mod_1")
    assert [graph.operand(f"score_mod_{i}").uid for i in range(2)] == [1000, 1001]
    assert graph.operand("score_mod_scalar_0").kind is OperandKind.HOST_SCALAR
    assert graph.score_mod_tensors == ("score_mod_0", "score_mod_1")


def test_what_differs_by_sequence_is_declared_for_every_key(make_problem: MakeProblem) -> None:
    """H200, cuDNN 9.19: [B, 1, 1, 1] and [B, H, 1, 1] are misread in functions of the logits."""
    slopes = TensorSpec.dense((2, 4, 1, 1), F32)
    graph = describe(make_problem(alibi_slopes=slopes, seq_lens_kv=True), H200, FORWARD)
    declared = graph.operand("alibi_slopes")
    assert (declared.shape, declared.strides[0], declared.strides[3]) == ((2, 4, 1, 128), 4, 0)
    assert declared.extent == slopes.nbytes
    assert graph.operand("seq_len_kv").shape == (2, 1, 1, 128)
    shared = TensorSpec.dense((1, 4, 1, 1), F32)
    graph = describe(make_problem(alibi_slopes=shared), H200, FORWARD)
    assert graph.operand("alibi_slopes").spec == shared.canonical()


def test_what_fills_up_a_tile_is_hidden_in_the_backward_pass(
    make_problem: MakeProblem,
) -> None:
    trace = Trace()
    flipped = ScoreMod(trace.expression(1.0 - trace.score))
    problem = replace(make_problem(skv=100), score_mod=flipped)
    graph = describe(problem, H200, BACKWARD)
    assert value(graph, score=float("-inf"), i=0, j=100) == float("-inf")
    assert value(graph, score=float("-inf"), i=128, j=0) == float("-inf")
    assert value(graph, score=3.0, i=0, j=99) == -2.0
    assert value(graph, score=float("-inf"), i=0, j=100, grad=0.0) == 0.0
