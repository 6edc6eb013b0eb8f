"""Everything that changes a plan changes its key; nothing else does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

import sdpa_core.fingerprint as fingerprint_module
from sdpa_core import Alignment, AttentionProblem, Band, DeviceSpec, Direction, DType, TensorSpec
from sdpa_core.fingerprint import builder_revision, fingerprint, render

MakeProblem = Callable[..., AttentionProblem]

H200 = DeviceSpec.named("h200", cudnn_version=91900)
BOTH = tuple(Direction)


def key(problem: AttentionProblem, direction: Direction = Direction.BACKWARD) -> str:
    return fingerprint(problem, H200, direction, "1.32.0")


def other(spec: TensorSpec) -> TensorSpec:
    """The same shape in another order of memory."""
    _, heads, tokens, head_dim = spec.shape
    return replace(spec, strides=(heads * tokens * head_dim, head_dim, heads * head_dim, 1))


#: For each field of a problem: how it changes, and the directions whose plan must change with it.
CHANGES = {
    "query": (lambda p: replace(p, query=other(p.query)), BOTH),
    "key": (lambda p: replace(p, key=other(p.key)), BOTH),
    "value": (lambda p: replace(p, value=other(p.value)), BOTH),
    "output": (lambda p: replace(p, output=other(p.output)), BOTH),
    "band": (lambda p: replace(p, band=Band.causal()), BOTH),
    "training": (lambda p: replace(p, training=False), (Direction.FORWARD,)),
    "return_lse": (lambda p: replace(p, training=False, return_lse=True), ()),
    "deterministic": (lambda p: replace(p, deterministic=True), (Direction.BACKWARD,)),
    "grad_output": (lambda p: replace(p, grad_output=other(p.output)), (Direction.BACKWARD,)),
}


@pytest.mark.parametrize("name", [field.name for field in fields(AttentionProblem)])
@pytest.mark.parametrize("direction", BOTH)
def test_each_field_moves_exactly_the_keys_it_should(
    make_problem: MakeProblem, name: str, direction: Direction
) -> None:
    problem = make_problem()
    change, moved = CHANGES[name]
    assert (key(problem, direction) != key(change(problem), direction)) == (direction in moved)


def test_inert_spellings_share_a_key(make_problem: MakeProblem) -> None:
    causal = make_problem(band=Band.causal())
    assert key(causal) == key(make_problem(band=Band.causal(Alignment.BOTTOM_RIGHT)))
    problem = make_problem()
    assert key(problem) == key(replace(problem, grad_output=problem.output))
    assert key(make_problem(band=Band(500, 500))) == key(problem)


def test_the_stride_of_a_length_one_axis_is_inert() -> None:
    strides = [(4096, 64, 64, 1), (4096, 1, 64, 1), (4096, 12345, 64, 1)]
    keys = {
        key(AttentionProblem.of(*[TensorSpec((2, 1, 64, 64), s, DType.FLOAT16)] * 3, training=True))
        for s in strides
    }
    assert len(keys) == 1


@pytest.mark.parametrize(
    "device",
    [
        DeviceSpec.named("h200", cudnn_version=92800),
        DeviceSpec.named("h100-pcie", cudnn_version=91900),
        DeviceSpec.named("b200", cudnn_version=91900),
    ],
)
def test_the_device_moves_the_key(make_problem: MakeProblem, device: DeviceSpec) -> None:
    problem = make_problem()
    assert key(problem) != fingerprint(problem, device, Direction.BACKWARD, "1.32.0")


def test_the_frontend_moves_the_key(make_problem: MakeProblem) -> None:
    problem = make_problem()
    assert key(problem) != fingerprint(problem, H200, Direction.BACKWARD, "1.28.0")


def test_editing_a_builder_moves_the_key(
    make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = Path(fingerprint_module.__file__).parent
    copy = tmp_path / "cudnn"
    copy.mkdir()
    for source in (package / "cudnn").glob("*.py"):
        (copy / source.name).write_bytes(source.read_bytes())
    before = builder_revision()
    monkeypatch.setattr(fingerprint_module.resources, "files", lambda _: tmp_path)
    builder_revision.cache_clear()
    try:
        assert builder_revision() == before
        builder_revision.cache_clear()
        (copy / "f16.py").write_text((copy / "f16.py").read_text() + "\n# edited\n")
        assert builder_revision() != before
    finally:
        builder_revision.cache_clear()


def test_a_variable_that_changes_plans_moves_the_key(
    make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key(make_problem())
    monkeypatch.setenv("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "12345")
    assert key(make_problem()) != before


def test_another_description_of_the_same_problem_moves_the_key(
    make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strides of results and the like are decided outside of the cuDNN folder."""
    before = key(make_problem())
    described = fingerprint_module.describe
    monkeypatch.setattr(
        fingerprint_module,
        "describe",
        lambda *arguments: replace(described(*arguments), workspace_limit=7),
    )
    assert key(make_problem()) != before


def test_a_key_is_the_same_in_another_process(make_problem: MakeProblem) -> None:
    code = """
from sdpa_core import *
from sdpa_core.fingerprint import fingerprint
spec = TensorSpec.dense((2, 4, 128, 64), DType.BFLOAT16)
problem = AttentionProblem.of(spec, spec, spec, training=True)
h200 = DeviceSpec.named("h200", cudnn_version=91900)
print(fingerprint(problem, h200, Direction.BACKWARD, "1.32.0"))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    }
    assert found == {key(make_problem())}


def test_values_without_a_canonical_form_are_refused() -> None:
    with pytest.raises(TypeError, match="function has no canonical rendering"):
        render((1, lambda: None))
    with pytest.raises(TypeError, match="list has no canonical rendering"):
        render([1])
