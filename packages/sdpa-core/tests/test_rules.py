"""What our rules say of cuDNN, on devices that need not be here."""

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
from sdpa_core.cudnn.f16 import describe
from sdpa_core.cudnn.known_bad import (
    ROWS,
    Remedy,
    faults,
    wants_full_lengths,
    workspace_limit,
)

MakeProblem = Callable[..., AttentionProblem]
FORWARD, BACKWARD = Direction
H200 = DeviceSpec.named("h200", cudnn_version=91900)
A100 = DeviceSpec.named("a100", cudnn_version=91900)
B200 = DeviceSpec.named("b200", cudnn_version=91900)


def whats(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> list[str]:
    return [reason.what for reason in rules.reasons(problem, device, direction)]


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
@pytest.mark.parametrize("device", [H200, A100, B200])
def test_the_common_problem_passes(
    make_problem: MakeProblem, device: DeviceSpec, direction: Direction
) -> None:
    assert whats(make_problem(band=Band.causal()), device, direction) == []


#: rule -> (what changes in the problem, device, direction, what the reason points at)
VIOLATIONS = {
    "platform": ({}, DeviceSpec.cpu(), FORWARD, "device"),
    "version": ({}, replace(H200, cudnn_version=90700), FORWARD, "cuDNN"),
    "released_faults": ({}, replace(H200, cudnn_version=91001), FORWARD, "cuDNN"),
    "dtype": ({"dtype": DType.FLOAT32}, H200, FORWARD, "query.dtype"),
    "head_dims": ({"d": 264}, H200, FORWARD, "query.shape[-1]"),
    "backward_head_dims": ({"d": 136}, A100, BACKWARD, "query.shape[-1], value.shape[-1]"),
    "single_token_backward": ({"sq": 1, "skv": 1}, H200, BACKWARD, "query and key tokens"),
    "memory": ({}, H200, FORWARD, "query.stride(-1)"),
}


def violation(
    make_problem: MakeProblem, rule: str
) -> tuple[AttentionProblem, DeviceSpec, Direction, str]:
    changes, device, direction, what = VIOLATIONS[rule]
    problem = make_problem(**changes)
    if rule == "memory":
        strides = (*problem.query.strides[:2], 1, problem.query.shape[2])
        problem = replace(problem, query=replace(problem.query, strides=strides))
    return problem, device, direction, what


@pytest.mark.parametrize("rule", [rule.__name__ for rule in rules.RULES])
def test_each_rule_refuses_and_without_it_nothing_would(
    make_problem: MakeProblem, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, device, direction, what = violation(make_problem, rule)
    assert what in whats(problem, device, direction)
    without = tuple(other for other in rules.RULES if other.__name__ != rule)
    monkeypatch.setattr(rules, "RULES", without)
    monkeypatch.setattr(rules, "platform", lambda *_: iter(()))
    assert what not in whats(problem, device, direction)


def test_every_reason_is_given_at_once(make_problem: MakeProblem) -> None:
    problem = make_problem(d=300, dv=12, dtype=DType.FLOAT32)
    assert whats(problem, replace(H200, sm=75), FORWARD) == ["compute capability"]
    assert whats(problem, H200, FORWARD) == [
        "query.dtype",
        "query.shape[-1]",  # a multiple of 8
        "query.shape[-1]",  # at most 256
        "value.shape[-1]",
    ]


@pytest.mark.parametrize(
    ("device", "version", "d", "dv", "supported"),
    [
        (H200, 91900, 256, 256, True),
        (H200, 91900, 192, 128, True),
        (A100, 91900, 192, 128, False),
        (B200, 91900, 192, 128, True),
        (B200, 91900, 128, 192, False),
        (B200, 91900, 256, 256, False),
        (B200, 92300, 256, 256, True),
        (DeviceSpec.named("rtx5090"), 92800, 136, 128, False),
    ],
)
def test_head_dims_of_the_backward_pass(
    make_problem: MakeProblem, device: DeviceSpec, version: int, d: int, dv: int, supported: bool
) -> None:
    problem = make_problem(d=d, dv=dv)
    found = whats(problem, replace(device, cudnn_version=version), BACKWARD)
    assert (found == []) == supported


@pytest.mark.parametrize(
    ("strides", "alignment", "what"),
    [
        ((32768, 8192, 64, 1), 16, None),
        ((32768, 64, 256, 1), 16, None),
        ((0, 0, 64, 1), 16, None),  # expanded operands are read in place
        ((32768, 8192, 64, 1), 8, "address of query"),
        ((32768, 8192, 64, 1), 2, "address of query"),
        ((32776, 8192, 64, 1), 16, None),
        ((32772, 8192, 64, 1), 16, "query.stride()"),
        ((32768, 8192, 65, 1), 16, "query.stride()"),
        ((32768, 8192, 1, 128), 16, "query.stride(-1)"),
        ((32768, 8192, -64, 1), 16, "query.stride()"),
    ],
)
def test_r18_memory_that_cannot_be_read_in_vectors(
    make_problem: MakeProblem, strides: tuple[int, ...], alignment: int, what: str | None
) -> None:
    problem = make_problem()
    query = TensorSpec(problem.query.shape, strides, DType.BFLOAT16, alignment)
    found = whats(replace(problem, query=query), H200, FORWARD)
    assert (what in found) if what else (found == [])


def test_r12_the_incoming_gradient_has_strides_of_its_own(make_problem: MakeProblem) -> None:
    problem = make_problem()
    odd = replace(problem.output, strides=(0, 0, 0, 0))
    asked = replace(problem, grad_output=odd)
    assert whats(asked, H200, BACKWARD) == ["grad_output.stride(-1)"]
    assert whats(asked, H200, FORWARD) == []


# ------------------------------------------------------------------------------ known-bad rows


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_names_its_source(row: object) -> None:
    assert row.source  # type: ignore[attr-defined]
    assert isinstance(row.remedy, Remedy)  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [91900, 92801, None])
@pytest.mark.parametrize(
    ("direction", "sq", "skv", "band", "bad"),
    [
        (BACKWARD, 64, 64, Band(), True),
        (BACKWARD, 17, 192, Band(), True),
        (BACKWARD, 64, 128, Band(), False),
        (BACKWARD, 100, 100, Band(), False),
        (BACKWARD, 64, 64, Band.causal(), False),
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
    if version is not None:
        assert any("half empty" in row.name for row in faults(problem, device, direction)) == bad
        assert wants_full_lengths(problem, device, direction) == bad
        graph = describe(problem, device, direction)
        lengths = [operand.constant for operand in graph.operands if operand.constant is not None]
        assert lengths == ([sq, skv] if bad else [])
        assert dict(graph.options).get("use_padding_mask", False) == bad


@pytest.mark.parametrize(("version", "bad"), [(91500, True), (91600, False)])
def test_captured_backward_with_a_partial_tile(
    make_problem: MakeProblem, version: int, bad: bool
) -> None:
    problem = make_problem(sq=100, skv=100)
    device = replace(H200, cudnn_version=version)
    assert wants_full_lengths(problem, device, BACKWARD) == bad


def test_rows_that_see_no_key_need_lengths(make_problem: MakeProblem) -> None:
    problem = make_problem(sq=300, skv=200, band=Band.causal(Alignment.BOTTOM_RIGHT))
    for direction in Direction:
        assert wants_full_lengths(problem, H200, direction)


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
    assert (workspace_limit(problem, H200, FORWARD) is not None) == limited
    assert (describe(problem, H200, FORWARD).workspace_limit is not None) == limited
    assert problem.deterministic == limited
