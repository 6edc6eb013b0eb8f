"""Whatever the problem: rules answer, reports print, and graphs agree with the problem."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sdpa_core import (
    AttentionProblem,
    DeviceSpec,
    Direction,
    NoBackendError,
    TensorSpec,
    decide,
    registry,
    require,
)
from sdpa_core.cli import main
from sdpa_core.config import settings as configuration
from sdpa_core.cudnn.builder import describe
from sdpa_core.cudnn.graph import GraphSpec, Operand, OperandKind, Rule
from sdpa_core.cudnn.memory import kept, memory_spec
from sdpa_core.cudnn.rules import reasons
from sdpa_core.fingerprint import fingerprint
from sdpa_core.reasons import Unsupported
from sdpa_core.testing import Case, problem_of
from sdpa_core.testing.fake_cudnn import FAKE_BACKENDS, RulesOnlyCudnn
from sdpa_core.testing.strategies import cases, devices, problems

#: The same cases in every run; what fails prints how to repeat it.
PROPERTY = settings(derandomize=True, deadline=None, print_blob=True, database=None)
FRONTEND = "1.32.0"
FORWARD, BACKWARD = Direction

directions = st.sampled_from(tuple(Direction))
readable = problems(odd=False)


@pytest.fixture(autouse=True, scope="module")
def only_our_backends() -> Iterator[None]:
    """Whatever this machine has installed or set."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SDPA_BACKENDS", "SDPA_FALLBACK"):
            patch.delenv(name, raising=False)
        patch.setattr(registry, "entry_points", lambda group: [])
        for found in (configuration, registry.backends):
            found.cache_clear()
        yield
    for found in (configuration, registry.backends):
        found.cache_clear()


def supported(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> AttentionProblem:
    """The problem, as this direction's plan is made for it, if the rules let it pass."""
    assume(direction is FORWARD or problem.training)
    assume(not problem.is_empty and not reasons(problem, device, direction))
    return problem


# ----------------------------------------------------------------------------------- rules


@settings(PROPERTY, max_examples=400)
@given(problem=problems(), device=devices())
def test_rules_always_answer_in_words(problem: AttentionProblem, device: DeviceSpec) -> None:
    for direction in Direction:
        for reason in reasons(problem, device, direction):
            assert isinstance(reason, Unsupported)
            assert str(reason).count("\n") == 0
            assert reason.what in str(reason)
            assert str(reason.got) in str(reason)
            assert reason.need in str(reason)


@settings(PROPERTY, max_examples=200)
@given(problem=problems() | cases().map(problem_of), device=devices(), training=st.booleans())
def test_the_reference_or_cudnn_always_answers(
    problem: AttentionProblem, device: DeviceSpec, training: bool
) -> None:
    problem = replace(problem, training=training)
    decision = decide(problem, device, known=FAKE_BACKENDS)
    assert decision.is_possible
    assert [choice.direction for choice in decision.choices] == list(Direction)[: 1 + training]
    report = str(decision)
    for choice in decision.choices:
        assert f"{choice.direction}: {choice.backend}" in report
        for _, answer in choice.rejected:
            assert answer.reasons
            assert all(told(reason) in report for reason in answer.reasons)


@settings(PROPERTY, max_examples=200)
@given(problem=problems(), device=devices())
def test_cudnn_alone_answers_or_tells_every_reason(
    problem: AttentionProblem, device: DeviceSpec
) -> None:
    decision = decide(problem, device, backend="cudnn", known={"cudnn": RulesOnlyCudnn()})
    asked = list(Direction)[: 1 + problem.training]
    refused = [reason for d in asked for reason in reasons(problem, device, d)]
    if problem.is_empty or not refused:
        assert require(decision) is decision
        return
    with pytest.raises(NoBackendError) as error:
        require(decision)
    text = str(error.value)
    assert all(told(reason) in text and reason.hint in text for reason in refused)


def told(reason: Unsupported) -> str:
    """A reason without its hint, which reports collect at the end."""
    return str(replace(reason, hint=""))


# ---------------------------------------------------------------------------------- graphs


@settings(PROPERTY, max_examples=150)
@given(problem=readable, device=devices(), direction=directions)
def test_graphs_agree_with_the_problem(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> None:
    problem = supported(problem, device, direction)
    graph = describe(problem, device, direction)
    check_uids(graph)
    check_roles(graph, problem, direction)
    check_broadcast(graph)
    for operand in graph.operands:
        check_ragged(operand, graph)
        if operand.derived is not None:
            check_derived(operand, problem)
        elif operand.constant is None and operand.kind is not OperandKind.HOST_SCALAR:
            check_memory(operand, problem)


@settings(PROPERTY, max_examples=200)
@given(case=cases(for_cudnn=True), device=devices(), direction=directions)
def test_graphs_agree_with_calls(case: Case, device: DeviceSpec, direction: Direction) -> None:
    """Of problems as the public functions make them."""
    problem = problem_of(case, training=True, return_lse=True, return_max_logit=True)
    graph = describe(supported(problem, device, direction), device, direction)
    check_uids(graph)
    check_roles(graph, problem, direction)
    check_broadcast(graph)


def check_uids(graph: GraphSpec) -> None:
    uids = [operand.uid for operand in graph.operands]
    roles = [operand.role for operand in graph.operands]
    assert uids == sorted(set(uids))
    assert len(set(roles)) == len(roles)


def check_roles(graph: GraphSpec, problem: AttentionProblem, direction: Direction) -> None:
    """Inputs come from the caller, from lengths of the caller's, or are constants."""
    forward = direction is FORWARD
    results = [o.role for o in graph.operands if o.kind is OperandKind.OUTPUT]
    wanted = problem.for_direction(direction)
    assert results == list(wanted.results if forward else wanted.gradients)
    given = {*problem.inputs, *(() if forward else ("output", "stats", "grad_output"))}
    for operand in graph.operands:
        if operand.kind is OperandKind.INPUT:
            made = (operand.constant is not None) + (operand.derived is not None)
            assert made + (operand.role in given) == 1, operand
        if operand.kind is OperandKind.HOST_SCALAR:
            assert operand.constant is not None or operand.role in scalars(problem)
    used = {o.derived.source if o.derived else o.role for o in graph.operands}
    # The backward pass has the sink in the statistics, and starts of packed rows instead of sums.
    assert set(problem.inputs) - used <= {"sink", "bias"}


def scalars(problem: AttentionProblem) -> set[str]:
    count = problem.score_mod.scalars if problem.score_mod else 0
    return {"scale", *(f"score_mod_scalar_{i}" for i in range(count))}


def check_ragged(operand: Operand, graph: GraphSpec) -> None:
    if operand.ragged is None:
        assert operand.ragged_unit == 1
        return
    (offsets,) = (o for o in graph.operands if o.uid == operand.ragged)
    assert offsets.derived is not None
    assert offsets.derived.rule in (Rule.OFFSETS, Rule.LENGTHS)
    assert offsets.shape == (operand.shape[0] + 1, 1, 1, 1)
    # A token of the offsets is a row of the operand, whoever multiplies.
    assert offsets.derived.multiplier * operand.ragged_unit == operand.strides[2]


def check_derived(operand: Operand, problem: AttentionProblem) -> None:
    assert operand.derived is not None
    assert operand.derived.source in problem.inputs
    assert operand.kind is OperandKind.INPUT
    entries = problem.batch + operand.derived.source.startswith("cu_")
    entries -= operand.derived.rule is Rule.DIFFERENCES
    assert operand.shape[0] >= entries
    # In functions of the logits one number may serve all rows, or all keys.
    for length, stride in zip(operand.shape[1:], operand.strides[1:], strict=True):
        assert length == 1 or stride == 0


def check_broadcast(graph: GraphSpec) -> None:
    """What is added to the logits, or read by a function of them, has their axes, or ones."""
    query, key = graph.operand("query"), graph.operand("key")
    tokens_kv = None if graph.has("page_table_k") else key.shape[2]
    full = (*query.shape[:3], tokens_kv)
    for operand in graph.operands:
        if operand.role in ("bias", "alibi_slopes", *graph.score_mod_tensors):
            for length, declared in zip(operand.shape, full, strict=True):
                assert declared is None or length in (1, declared), operand


def check_memory(operand: Operand, problem: AttentionProblem) -> None:
    """What cuDNN may touch is there; an operand that the caller brings is read as it lies."""
    memory = memory_spec(operand, problem)
    assert operand.extent <= memory.nbytes or (operand.ragged is not None and memory.is_empty)
    assert memory.dtype is operand.dtype
    wanted = kept(operand, problem)
    if wanted is not None:
        batch, rows = wanted
        assert batch <= operand.shape[0]
        assert rows <= operand.shape[2]
    if operand.role in ("grad_key", "grad_value") and operand.ragged is None:
        assert operand.shape[::2] == (problem.batch, problem.tokens_kv)
    given = getattr(problem, operand.role, None)
    if not isinstance(given, TensorSpec) or operand.role in ("output", "grad_output"):
        return
    if operand.ragged is None and operand.shape == given.shape:
        for length, ours, theirs in zip(given.shape, operand.strides, given.strides, strict=True):
            assert length == 1 or ours == theirs


# ------------------------------------------------------------------------------------ keys


# Most problems are refused for something; those that are not are what this is about.
@settings(PROPERTY, max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(problem=readable, other=readable, device=devices(), direction=directions)
def test_plans_are_shared_exactly_where_graphs_are_equal(
    problem: AttentionProblem, other: AttentionProblem, device: DeviceSpec, direction: Direction
) -> None:
    problem = supported(problem, device, direction)
    key = fingerprint(problem, device, direction, FRONTEND)
    again = replace(problem, query=replace(problem.query, strides=tuple(problem.query.strides)))
    assert fingerprint(again, device, direction, FRONTEND) == key
    assert fingerprint(problem.for_direction(direction), device, direction, FRONTEND) == key
    for changed in (
        replace(problem, band=other.band),
        replace(problem, softmax=other.softmax),
        replace(problem, dropout_p=other.dropout_p),
        replace(problem, deterministic=other.deterministic),
        replace(problem, return_lse=other.return_lse),
        replace(problem, return_max_logit=other.return_max_logit),
        replace(problem, query=replace(problem.query, strides=other.query.strides)),
    ):
        if reasons(changed, device, direction):
            continue
        if describe(changed, device, direction) != describe(problem, device, direction):
            assert fingerprint(changed, device, direction, FRONTEND) != key


# ---------------------------------------------------------------------------- command line

_lengths = st.sampled_from(("0", "1", "2", "8", "64", "100", "-1", "x", "", "1e3", "70000"))
_shape = st.lists(_lengths, min_size=3, max_size=5).map(",".join)
_good_shape = st.tuples(
    st.sampled_from("0123"),
    st.sampled_from("248"),
    st.sampled_from(("0", "1", "64", "100")),
    st.sampled_from(("8", "64", "128", "7")),
).map(",".join)
_any_shape = _good_shape | _good_shape | _shape

#: Options and the values that they may have here, right and wrong; None: it takes none.
_OPTIONS: dict[str, st.SearchStrategy[str] | None] = {
    "--device": st.sampled_from(("h200", "H200", "a100", "b200", "h300", "")),
    "--sm": st.sampled_from(("80", "86", "90", "100", "120", "0", "-1", "ninety")),
    "--cudnn": st.sampled_from(("9.8", "9.19", "9.19.2", "9.28.1", "9", "9.x", "1.2.3.4", "")),
    "--backend": st.sampled_from(("cudnn", "reference", "flash", "")),
    "--dtype": st.sampled_from(("bf16", "fp16", "float32", "f64", "int32", "bool", "half", "")),
    "--q": _any_shape,
    "--kv": _any_shape,
    "--v-dim": st.sampled_from(("0", "8", "128", "-8", "x", "1.5")),
    "--layout": st.sampled_from(("bhsd", "bshd", "sbhd", "thd")),
    "--causal": st.sampled_from(("top_left", "bottom_right", "middle")),
    "--window": st.sampled_from(
        ("1,2", "inf,0", "3,inf:bottom_right", "1", "1,2,3", "-1,0", "a,b")
    ),
    "--bias": _any_shape
    | _any_shape.map(lambda shape: f"{shape}:fp32")
    | st.just("1,1,64,64:bool"),
    "--bias-grad": None,
    "--alibi": None,
    "--alibi-slopes": st.sampled_from(("h", "bh", "x")),
    "--softmax": st.sampled_from(("vanilla", "off_by_one", "learnable", "plain")),
    "--sink-grad": None,
    "--softcap": st.sampled_from(("30", "0", "-1", "nan", "inf", "x")),
    "--dropout": st.sampled_from(("0", "0.1", "1", "-0.1", "nan", "x")),
    "--seq-lens-q": None,
    "--seq-lens-kv": None,
    "--packed": st.sampled_from(("q", "kv", "both", "q:100", "kv:0", "both:-1", "v", "q:")),
    "--gaps": None,
    "--page-size": st.sampled_from(("1", "16", "0", "-1", "x", "100")),
    "--training": None,
    "--lse": None,
    "--max-logit": None,
    "--deterministic": None,
    "--json": None,
    "--frobnicate": None,
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """``explain`` with a device and shapes, mostly right ones, and some other options."""
    words = ["explain", "--q", draw(_good_shape), "--device", "h200"]
    if draw(st.integers(0, 9)) == 0:
        words = [draw(st.sampled_from(("explain", "explian", "")))]
    for name in draw(st.lists(st.sampled_from(tuple(_OPTIONS)), max_size=6, unique=True)):
        values = _OPTIONS[name]
        words += [name] if values is None else [name, draw(values)]
    return words


@settings(PROPERTY, max_examples=600)
@given(words=command_lines())
def test_the_command_line_answers_or_says_in_one_line_what_is_wrong(words: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    if status == 0:
        assert out.getvalue()
        assert not err.getvalue()
        return
    assert status == 2
    assert not out.getvalue()
    assert err.getvalue().startswith("python -m sdpa_core")
    assert err.getvalue().count("\n") == 1
