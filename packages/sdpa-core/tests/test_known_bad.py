"""Faults of released cuDNN versions: where each row applies, and what is done about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sdpa_core import (
    Alignment,
    AttentionProblem,
    Band,
    DeviceSpec,
    Direction,
    DType,
    TensorSpec,
)
from sdpa_core.cudnn import rules
from sdpa_core.cudnn.builder import describe
from sdpa_core.cudnn.known_bad import (
    ROWS,
    KnownBad,
    Remedy,
    faults,
    wants_full_lengths,
    wants_whole_keys,
)
from sdpa_core.logits import ScoreMod
from sdpa_core.paged import Paged
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed, packed_spec
from sdpa_core.score_mod import trace

MakeProblem = Callable[..., AttentionProblem]
FORWARD, BACKWARD = Direction
H200 = DeviceSpec.named("h200", cudnn_version=91900)
A100 = DeviceSpec.named("a100", cudnn_version=91900)
B200 = DeviceSpec.named("b200", cudnn_version=91900)
CAUSAL = Band.causal()
BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)


def packed(make_problem: MakeProblem, **changes: object) -> AttentionProblem:
    """Two packed sequences, of at most 128 tokens unless ``sq`` and ``skv`` say otherwise."""
    dense = make_problem(**changes)
    tokens = {"query": dense.tokens_q, "key": dense.tokens_kv, "value": dense.tokens_kv}
    specs = {}
    for name, longest in tokens.items():
        spec = getattr(dense, name)
        heads, width = spec.shape[1], spec.shape[3]
        rows, strides = (2 * longest, heads, width), (heads * width, width, 1)
        specs[name] = packed_spec(rows, strides, spec.dtype, batch=2, max_tokens=longest)
    return replace(
        dense,
        **specs,
        packed_q=Packed(2 * dense.tokens_q),
        packed_kv=Packed(2 * dense.tokens_kv),
    )


def paged(make_problem: MakeProblem) -> AttentionProblem:
    dense = make_problem(training=False)
    table = TensorSpec.dense((2, 2), DType.INT32)
    pool = TensorSpec.dense((4, 4, 64, 64), DType.BFLOAT16)
    return replace(
        dense,
        key=pool,
        value=pool,
        paged=Paged(table, table, 128),
        seq_lens_kv=True,
        seq_lens_q=True,
    )


def names(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> str:
    return "; ".join(row.name for row in faults(problem, device, direction))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_names_its_source_and_a_remedy(row: KnownBad) -> None:
    assert row.source
    assert isinstance(row.remedy, Remedy)
    assert row.first is None or row.fixed is None or row.first < row.fixed


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_says_what_a_caller_can_do(row: KnownBad) -> None:
    assert row.remedy is not Remedy.REFUSE or row.fixed or row.change


@pytest.mark.parametrize(
    ("first", "fixed", "version", "affected"),
    [
        (None, None, 92800, True),
        (None, 92500, 92499, True),
        (None, 92500, 92500, False),
        (91400, 91401, 91399, False),
        (91400, 91401, 91400, True),
        (91400, 91401, None, True),
    ],
)
def test_versions_of_a_row(
    first: int | None, fixed: int | None, version: int | None, affected: bool
) -> None:
    row = KnownBad("", first, fixed, lambda *_: True, Remedy.REFUSE, "")
    assert row.affects(version) == affected


# ------------------------------------------------------------------- full lengths, whole keys


@pytest.mark.parametrize("version", [91900, 92801, None])
@pytest.mark.parametrize(
    ("direction", "sq", "skv", "band", "bad"),
    [
        (BACKWARD, 64, 64, Band(), True),
        (BACKWARD, 17, 192, Band(), True),
        (BACKWARD, 64, 128, Band(), False),
        (BACKWARD, 100, 100, Band(), False),
        (BACKWARD, 64, 64, CAUSAL, False),
        (FORWARD, 64, 64, Band(), False),
    ],
)
def test_r01_half_empty_key_tiles_get_full_lengths(
    make_problem: MakeProblem,
    direction: Direction,
    sq: int,
    skv: int,
    band: Band,
    bad: bool,
    version: int | None,
) -> None:
    problem = make_problem(sq=sq, skv=skv, band=band)
    device = replace(H200, cudnn_version=version)
    assert ("half empty" in names(problem, device, direction)) == bad
    if version is not None:
        assert wants_full_lengths(problem, device, direction) == bad
        graph = describe(problem, device, direction)
        lengths = [operand.constant for operand in graph.operands if operand.constant is not None]
        assert lengths == ([sq, skv] if bad else [])
        assert dict(graph.options).get("use_padding_mask", False) == bad


@pytest.mark.parametrize(("version", "bad"), [(91500, True), (91501, False)])
def test_captured_backward_with_a_partial_tile(
    make_problem: MakeProblem, version: int, bad: bool
) -> None:
    problem = make_problem(sq=100, skv=100)
    device = replace(H200, cudnn_version=version)
    assert wants_full_lengths(problem, device, BACKWARD) == bad


@pytest.mark.parametrize(
    ("sq", "skv", "band", "wanted"),
    [
        (300, 200, BOTTOM_RIGHT, True),
        (300, 200, Band(64, 0), True),
        (300, 200, Band(64, 32), True),
        (300, 200, CAUSAL, False),
        (200, 300, Band(64, 0), False),
        (200, 300, BOTTOM_RIGHT, False),
    ],
)
def test_bands_over_more_queries_than_keys_need_lengths(
    make_problem: MakeProblem, sq: int, skv: int, band: Band, wanted: bool
) -> None:
    problem = make_problem(sq=sq, skv=skv, band=band)
    assert wants_full_lengths(problem, H200, FORWARD) == wanted
    options = dict(describe(problem, H200, FORWARD).options)
    assert options.get("use_padding_mask", False) == wanted


@pytest.mark.parametrize(
    ("sq", "deterministic", "stats", "limited"),
    [
        (1, True, True, True),
        (2, True, True, False),
        (1, False, True, False),
        (1, True, False, False),
    ],
)
def test_split_keys_are_avoided_where_statistics_must_repeat(
    make_problem: MakeProblem, sq: int, deterministic: bool, stats: bool, limited: bool
) -> None:
    problem = make_problem(sq=sq, deterministic=deterministic, training=stats)
    problem = problem.for_direction(FORWARD)
    assert wants_whole_keys(problem, H200, FORWARD) == limited
    assert describe(problem, H200, FORWARD).whole_keys == limited
    assert problem.deterministic == limited


# ----------------------------------------------------------------------- sequences without keys


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
@pytest.mark.parametrize(("version", "bad"), [(91900, True), (92500, False), (None, True)])
def test_r07_sequences_without_keys_are_fixed_afterwards(
    make_problem: MakeProblem, version: int | None, bad: bool, direction: Direction
) -> None:
    device = replace(H200, cudnn_version=version)
    with_lengths = make_problem(seq_lens_kv=True)
    for problem in (with_lengths, packed(make_problem)):
        found = [row.remedy for row in faults(problem, device, direction)]
        assert (Remedy.FIX_EMPTY in found) == bad
    for problem in (make_problem(), make_problem(seq_lens_q=True)):
        assert "without keys" not in names(problem, device, direction)


# ----------------------------------------------------------------------------------- refusals


def refusals(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> str:
    reasons = rules.reasons(problem, device, direction)
    return "; ".join(str(reason) for reason in reasons if reason.what == "cuDNN")


def test_windows_of_9_14(make_problem: MakeProblem) -> None:
    device = replace(H200, cudnn_version=91400)
    long, short = (make_problem(skv=skv, band=Band(64, 32)) for skv in (2048, 1024))
    assert "needs >= 9.14.1: non-causal sliding window" in refusals(long, device, FORWARD)
    assert refusals(short, device, FORWARD) == ""
    assert refusals(make_problem(skv=2048, band=Band(64, 0)), device, FORWARD) == ""
    assert refusals(long, replace(device, cudnn_version=91401), FORWARD) == ""


def test_r57_gradients_of_packed_sequences_on_hopper(make_problem: MakeProblem) -> None:
    problem, old = packed(make_problem), replace(H200, cudnn_version=91701)
    assert "needs >= 9.18.0: gradients of packed" in refusals(problem, old, BACKWARD)
    assert refusals(problem, old, FORWARD) == ""
    assert refusals(make_problem(), old, BACKWARD) == ""
    assert refusals(problem, replace(B200, cudnn_version=91701), BACKWARD) == ""
    assert refusals(problem, replace(H200, cudnn_version=91800), BACKWARD) == ""


@pytest.mark.parametrize("device", [H200, A100, B200])
def test_r109_packed_backward_with_a_sink(make_problem: MakeProblem, device: DeviceSpec) -> None:
    sink = {"softmax": Softmax.LEARNABLE, "sink_grad": True}
    problem = packed(make_problem, **sink)
    assert "needs >= 9.26.0: the sink's gradient" in refusals(problem, device, BACKWARD)
    assert refusals(problem, device, FORWARD) == ""
    assert refusals(make_problem(**sink), device, BACKWARD) == ""
    assert refusals(problem, replace(device, cudnn_version=92600), BACKWARD) == ""
    # Without that gradient the graph has no sink.
    for softmax in (Softmax.LEARNABLE, Softmax.OFF_BY_ONE):
        without = packed(make_problem, softmax=softmax)
        assert refusals(without, device, BACKWARD) == ""
        assert not describe(without, device, BACKWARD).has("sink")
        assert describe(without, device, FORWARD).has("sink")


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
def test_functions_of_packed_sequences(make_problem: MakeProblem, direction: Direction) -> None:
    slopes = {"alibi_slopes": TensorSpec.dense((1, 4, 1, 1), DType.FLOAT32)}
    score_mod = {"score_mod": ScoreMod(trace(lambda graph, score: 2 * score, ()).expression)}
    for function in ({"softcap": 30.0}, slopes, score_mod):
        both = packed(make_problem, **function)
        sides = (both, replace(both, packed_kv=None), replace(both, packed_q=None))
        for problem in sides:
            assert "memory of no tensor" in refusals(problem, H200, direction)
        assert refusals(make_problem(**function, seq_lens_kv=True), H200, direction) == ""
    for deterministic in (True, False):
        alibi = packed(make_problem, alibi=True, band=CAUSAL, deterministic=deterministic)
        assert refusals(alibi, H200, direction) == ""


def test_gradients_of_a_sink_under_dropout(make_problem: MakeProblem) -> None:
    sink = {"softmax": Softmax.LEARNABLE, "dropout_p": 0.1}
    assert "by the factor" in refusals(make_problem(**sink, sink_grad=True), H200, BACKWARD)
    assert refusals(make_problem(**sink, sink_grad=True), H200, FORWARD) == ""
    assert refusals(make_problem(**sink), H200, BACKWARD) == ""


def test_causal_attention_that_hangs(make_problem: MakeProblem) -> None:
    b300 = replace(B200, sm=103, cudnn_version=92100)
    problem = make_problem(sq=128, skv=4096, band=BOTTOM_RIGHT)
    assert "needs >= 9.22.0: causal attention" in refusals(problem, b300, FORWARD)
    assert refusals(problem, replace(b300, sm=100), FORWARD) == ""
    assert refusals(problem, replace(b300, cudnn_version=92200), FORWARD) == ""
    assert refusals(make_problem(sq=128, skv=4096), b300, FORWARD) == ""
    assert refusals(make_problem(band=CAUSAL), b300, FORWARD) == ""


def test_caches_on_ada(make_problem: MakeProblem) -> None:
    ada = replace(A100, sm=89, cudnn_version=92800)
    problem = paged(make_problem)
    assert "but none is known: wrong results" in refusals(problem, ada, FORWARD)
    assert refusals(problem, replace(ada, sm=86), FORWARD) == ""
    assert refusals(make_problem(training=False), ada, FORWARD) == ""


def test_deterministic_gradients_of_a_sink(make_problem: MakeProblem) -> None:
    sink = {"softmax": Softmax.LEARNABLE, "sink_grad": True}
    for problem in (make_problem(**sink, deterministic=True), make_problem(sq=1, **sink)):
        refused = "differs from run to run" in refusals(problem, H200, BACKWARD)
        assert refused == problem.deterministic
    frozen = make_problem(softmax=Softmax.LEARNABLE, deterministic=True)
    assert refusals(frozen, H200, BACKWARD) == ""
    assert refusals(make_problem(**sink, deterministic=True), H200, FORWARD) == ""


def test_a_fault_of_every_version_is_refused_without_knowing_the_version(
    make_problem: MakeProblem,
) -> None:
    sink = make_problem(softmax=Softmax.LEARNABLE, sink_grad=True, deterministic=True)
    unknown = replace(H200, cudnn_version=None)
    (reason,) = rules.reasons(sink, unknown, BACKWARD)
    assert (reason.got, reason.hint.startswith("deterministic=False")) == ("any version", True)
    assert refusals(packed(make_problem), unknown, BACKWARD) == ""  # wrong before 9.18 only


def test_what_an_upgrade_mends_is_told_before_what_it_does_not(make_problem: MakeProblem) -> None:
    sink = {"softmax": Softmax.LEARNABLE, "sink_grad": True, "deterministic": True}
    found = rules.reasons(packed(make_problem, **sink), H200, BACKWARD)
    needs = [reason.need.partition(":")[0] for reason in found if reason.what == "cuDNN"]
    assert needs == [">= 9.26.0", "a version without this fault, but none is known"]
    assert [reason.hint.partition(" ")[0] for reason in found] == ["pip", "deterministic=False,"]


def test_the_gradient_of_a_bias_in_a_function(make_problem: MakeProblem) -> None:
    bias = {"bias": TensorSpec.dense((1, 1, 128, 128), DType.BFLOAT16)}
    slopes = {"alibi_slopes": TensorSpec.dense((1, 4, 1, 1), DType.FLOAT32)}
    assert refusals(make_problem(**slopes, bias_grad=True, **bias), H200, BACKWARD) != ""
    refused = refusals(make_problem(softcap=30.0, bias_grad=True, **bias), H200, BACKWARD)
    assert "not seen to be right" in refused
    assert refusals(make_problem(softcap=30.0, **bias), H200, BACKWARD) == ""
    assert refusals(make_problem(bias_grad=True, **bias), H200, BACKWARD) == ""


def test_every_refusing_row_is_tested_above(make_problem: MakeProblem) -> None:
    refusing = [row.name for row in ROWS if row.remedy is Remedy.REFUSE]
    assert refusing == [
        "softcap, score_mod or slopes of packed sequences access memory of no tensor",
        "the sink's gradient under dropout is too small by the factor 1 - dropout_p",
        "the gradient of a bias beside softcap, score_mod or slopes was not seen to be right",
        "the gradient of a sink differs from run to run, deterministic or not",
        "non-causal sliding window over more than 1024 keys gives NaN",
        "gradients of packed sequences are NaN: a workspace is not initialized",
        "the sink's gradient of packed sequences: the log-sum-exp is read as if dense",
        "causal attention with more keys than queries hangs",
        "wrong results with a cache of keys on compute capability 8.9",
    ]
