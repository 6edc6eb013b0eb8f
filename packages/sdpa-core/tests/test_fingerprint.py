"""Everything that changes a plan changes its key; nothing else does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

import sdpa_core.fingerprint as fingerprint_module
from sdpa_core import Alignment, AttentionProblem, Band, DeviceSpec, Direction, DType, TensorSpec
from sdpa_core.fingerprint import builder_revision, fingerprint, render
from sdpa_core.logits import ScoreMod
from sdpa_core.paged import Paged
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed, packed_spec
from sdpa_core.score_mod import Trace

MakeProblem = Callable[..., AttentionProblem]

H200 = DeviceSpec.named("h200", cudnn_version=91900)
BOTH = tuple(Direction)


def key(problem: AttentionProblem, direction: Direction = Direction.BACKWARD) -> str:
    return fingerprint(problem, H200, direction, "1.32.0")


def other(spec: TensorSpec) -> TensorSpec:
    """The same shape in another order of memory."""
    _, heads, tokens, head_dim = spec.shape
    return replace(spec, strides=(heads * tokens * head_dim, head_dim, heads * head_dim, 1))


def packed(tokens: int = 300, longest: int = 128, batch: int = 2) -> AttentionProblem:
    """Sequences packed one after another, for both sides."""
    spec = packed_spec(
        (tokens, 4, 64), (256, 64, 1), DType.BFLOAT16, batch=batch, max_tokens=longest
    )
    side = Packed(tokens)
    return AttentionProblem.of(spec, spec, spec, packed_q=side, packed_kv=side, training=True)


def score_mod(factor: float) -> ScoreMod:
    trace = Trace()
    return ScoreMod(trace.expression(trace.score * factor))


FORWARD, BACKWARD = (Direction.FORWARD,), (Direction.BACKWARD,)
BIAS = TensorSpec.dense((1, 1, 128, 128), DType.BFLOAT16)
SLOPES = TensorSpec.dense((1, 4, 1, 1), DType.FLOAT32)
TABLE = TensorSpec.dense((2, 8), DType.INT32)

#: For each field of a problem: how it changes, and the directions whose plan must change with it.
CHANGES = {
    "query": (lambda p: replace(p, query=other(p.query)), BOTH),
    "key": (lambda p: replace(p, key=other(p.key)), BOTH),
    "value": (lambda p: replace(p, value=other(p.value)), BOTH),
    "output": (lambda p: replace(p, output=other(p.output)), BOTH),
    "band": (lambda p: replace(p, band=Band.causal()), BOTH),
    "bias": (lambda p: replace(p, bias=BIAS), BOTH),
    "alibi": (lambda p: replace(p, alibi=True), BOTH),
    "alibi_slopes": (lambda p: replace(p, alibi_slopes=SLOPES), BOTH),
    "softmax": (lambda p: replace(p, softmax=Softmax.LEARNABLE), BOTH),
    "softcap": (lambda p: replace(p, softcap=30.0), BOTH),
    "score_mod": (lambda p: replace(p, score_mod=score_mod(2.0)), BOTH),
    "dropout_p": (lambda p: replace(p, dropout_p=0.1), BOTH),
    "seq_lens_q": (lambda p: replace(p, seq_lens_q=True), BOTH),
    "seq_lens_kv": (lambda p: replace(p, seq_lens_kv=True), BOTH),
    "packed_q": (lambda p: replace(p, packed_q=Packed(256)), BOTH),
    "packed_kv": (lambda p: replace(p, packed_kv=Packed(256)), BOTH),
    "paged": (lambda p: replace(p, paged=Paged(TABLE, TABLE, 128)), BOTH),
    "training": (lambda p: replace(p, training=False), FORWARD),
    "return_lse": (lambda p: replace(p, training=False, return_lse=True), ()),
    "return_max_logit": (lambda p: replace(p, return_max_logit=True), FORWARD),
    "deterministic": (lambda p: replace(p, deterministic=True), BACKWARD),
    "bias_grad": (lambda p: replace(p, bias=BIAS, bias_grad=True), BACKWARD),
    "sink_grad": (lambda p: replace(p, softmax=Softmax.LEARNABLE, sink_grad=True), BACKWARD),
    "grad_output": (lambda p: replace(p, grad_output=other(p.output)), BACKWARD),
}

#: What a change needs to be there before, so that only the field itself differs.
BEFORE = {
    "bias_grad": {"bias": BIAS},
    "sink_grad": {"softmax": Softmax.LEARNABLE},
}


@pytest.mark.parametrize("name", [field.name for field in fields(AttentionProblem)])
@pytest.mark.parametrize("direction", BOTH)
def test_each_field_moves_exactly_the_keys_it_should(
    make_problem: MakeProblem, name: str, direction: Direction
) -> None:
    problem = replace(make_problem(), **BEFORE.get(name, {}))
    change, moved = CHANGES[name]
    assert (key(problem, direction) != key(change(problem), direction)) == (direction in moved)


@pytest.mark.parametrize("direction", BOTH)
def test_packed_problems_of_a_bucket_share_a_key(direction: Direction) -> None:
    """Batch and tokens of the bucket enter, not the batch's own (TransformerEngine PR 3508)."""
    here = key(packed(), direction)
    assert here == key(packed(tokens=1024, longest=500, batch=32), direction)
    assert here != key(packed(tokens=1025), direction)
    assert here != key(packed(batch=33), direction)


def test_page_tables_move_the_key(make_problem: MakeProblem) -> None:
    """Each table by itself, by shape and by stride (flashinfer PR 4270, item 6)."""
    wide = replace(TABLE, strides=(63, 1))
    keys = {
        key(replace(make_problem(), paged=paged), Direction.FORWARD)
        for paged in (
            Paged(TABLE, TABLE, 128),
            Paged(wide, TABLE, 128),
            Paged(TABLE, wide, 128),
            Paged(TABLE, TABLE, 127),
        )
    }
    assert len(keys) == 4


def test_functions_of_the_logits_are_keyed_by_what_they_compute(make_problem: MakeProblem) -> None:
    def key_with(factor: float) -> str:
        return key(replace(make_problem(), score_mod=score_mod(factor)))

    assert key_with(2.0) == key_with(2.0) != key_with(3.0)


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


@pytest.mark.parametrize(
    "edited",
    ["cudnn/f16.py", "cudnn/rules/masks.py", "score_mod/derivative.py", "ragged.py"],
)
def test_editing_a_builder_moves_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, edited: str
) -> None:
    package = Path(fingerprint_module.__file__).parent
    copy = shutil.copytree(package, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    before = builder_revision()
    monkeypatch.setattr(fingerprint_module.resources, "files", lambda _: copy)
    builder_revision.cache_clear()
    try:
        assert builder_revision() == before
        builder_revision.cache_clear()
        source = copy / edited
        source.write_text(source.read_text() + "\n# edited\n")
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
        lambda *arguments: replace(described(*arguments), whole_keys=True),
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
