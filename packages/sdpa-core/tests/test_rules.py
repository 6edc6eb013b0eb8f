"""What our rules say of cuDNN, on devices that need not be here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
from sdpa_core.paged import INFERENCE_ONLY, Paged
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed, packed_spec

MakeProblem = Callable[..., AttentionProblem]
FORWARD, BACKWARD = Direction
H200 = DeviceSpec.named("h200", cudnn_version=91900)
A100 = DeviceSpec.named("a100", cudnn_version=91900)
B200 = DeviceSpec.named("b200", cudnn_version=91900)
RTX5090 = DeviceSpec.named("rtx5090", cudnn_version=91900)
NEWEST = 92801
CAUSAL = Band.causal()
BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)
BIAS = TensorSpec.dense((1, 4, 128, 128), DType.BFLOAT16)


def whats(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> list[str]:
    return [reason.what for reason in rules.reasons(problem, device, direction)]


def words(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> str:
    return "; ".join(str(reason) for reason in rules.reasons(problem, device, direction))


def packed(problem: AttentionProblem, *sides: str, rows: int = 200) -> AttentionProblem:
    """The problem with the queries ("q"), the keys ("kv") or both in packed rows."""

    def rewritten(spec: TensorSpec) -> TensorSpec:
        batch, heads, longest, width = spec.shape
        strides = (heads * width, width, 1)
        return packed_spec(
            (rows, heads, width), strides, spec.dtype, batch=batch, max_tokens=longest
        )

    q, kv = "q" in sides or not sides, "kv" in sides or not sides
    return replace(
        problem,
        query=rewritten(problem.query) if q else problem.query,
        key=rewritten(problem.key) if kv else problem.key,
        value=rewritten(problem.value) if kv else problem.value,
        packed_q=Packed(rows) if q else None,
        packed_kv=Packed(rows) if kv else None,
        seq_lens_q=not q,
        seq_lens_kv=not kv,
    )


def paged(problem: AttentionProblem) -> AttentionProblem:
    table = TensorSpec.dense((2, 2), DType.INT32)
    pool = TensorSpec.dense((4, 4, 64, 64), DType.BFLOAT16)
    lengths = {"seq_lens_q": True, "seq_lens_kv": True}
    return replace(problem, key=pool, value=pool, paged=Paged(table, table, 128), **lengths)


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
@pytest.mark.parametrize("device", [H200, A100, B200, RTX5090])
def test_the_common_problem_passes(
    make_problem: MakeProblem, device: DeviceSpec, direction: Direction
) -> None:
    assert whats(make_problem(band=CAUSAL), device, direction) == []


def strided(problem: AttentionProblem) -> AttentionProblem:
    strides = (*problem.query.strides[:2], 1, problem.query.shape[2])
    return replace(problem, query=replace(problem.query, strides=strides))


def sliced(problem: AttentionProblem, width: int) -> AttentionProblem:
    """The first ``width`` elements of each query and key: memory that cuDNN can read."""

    def first(spec: TensorSpec) -> TensorSpec:
        return replace(spec, shape=(*spec.shape[:3], width))

    return replace(problem, query=first(problem.query), key=first(problem.key))


Change = Callable[[MakeProblem], AttentionProblem]

#: rule -> (a problem, device, direction, what the reason points at)
VIOLATIONS: dict[str, tuple[Change, DeviceSpec, Direction, str]] = {
    "version": (lambda make: make(), replace(H200, cudnn_version=91001), FORWARD, "cuDNN"),
    "released_faults": (
        lambda make: make(skv=2048, band=Band(64, 32)),
        replace(H200, cudnn_version=91400),
        FORWARD,
        "cuDNN",
    ),
    "dtype": (lambda make: make(dtype=DType.FLOAT32), H200, FORWARD, "query.dtype"),
    "head_dims": (lambda make: sliced(make(), 60), H200, FORWARD, "query.shape[-1]"),
    "backward_head_dims": (
        lambda make: make(d=136),
        A100,
        BACKWARD,
        "query.shape[-1], value.shape[-1]",
    ),
    "single_token_backward": (
        lambda make: make(sq=1, skv=1),
        H200,
        BACKWARD,
        "query and key tokens",
    ),
    "memory": (lambda make: strided(make()), H200, FORWARD, "query.stride(-1)"),
    "bottom_right": (
        lambda make: make(band=BOTTOM_RIGHT, seq_lens_kv=True, dropout_p=0.1),
        H200,
        FORWARD,
        "dropout_p",
    ),
    "alibi": (lambda make: make(alibi=True), H200, FORWARD, "alibi"),
    "bias": (
        lambda make: make(bias=replace(BIAS, dtype=DType.FLOAT16)),
        H200,
        FORWARD,
        "bias.dtype",
    ),
    "packed": (lambda make: packed(make()), replace(A100, cudnn_version=91800), FORWARD, "cuDNN"),
    "packed_queries": (lambda make: packed(make(), "q"), A100, BACKWARD, "cu_seqlens_q"),
    "packed_keys": (
        lambda make: packed(make(), "kv", rows=2**23),
        H200,
        FORWARD,
        "cu_seqlens_kv",
    ),
    "paged": (lambda make: paged(make()), H200, BACKWARD, "training"),
    "sink": (
        lambda make: make(softmax=Softmax.LEARNABLE),
        replace(H200, cudnn_version=91300),
        FORWARD,
        "cuDNN",
    ),
    "max_logit": (lambda make: make(return_max_logit=True), H200, FORWARD, "cuDNN"),
    "deterministic": (
        lambda make: make(deterministic=True),
        replace(B200, cudnn_version=91701),
        BACKWARD,
        "cuDNN",
    ),
    "bias_gradient": (
        lambda make: make(bias=BIAS, bias_grad=True, dropout_p=0.1),
        B200,
        BACKWARD,
        "bias.requires_grad",
    ),
}


@pytest.mark.parametrize("rule", [rule.__name__ for rule in rules.RULES])
def test_each_rule_refuses_and_without_it_nothing_would(
    make_problem: MakeProblem, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, device, direction, what = VIOLATIONS[rule]
    problem = change(make_problem)
    assert what in whats(problem, device, direction)
    without = tuple(other for other in rules.RULES if other.__name__ != rule)
    monkeypatch.setattr(rules, "RULES", without)
    assert whats(problem, device, direction) == []


def test_another_platform_is_the_only_reason(make_problem: MakeProblem) -> None:
    problem = make_problem(d=300, dtype=DType.FLOAT32)
    assert whats(problem, DeviceSpec.cpu(), FORWARD) == ["device"]
    assert whats(problem, replace(H200, sm=75), FORWARD) == ["compute capability"]


def test_a_cudnn_that_is_not_known_is_taken_for_a_new_one(make_problem: MakeProblem) -> None:
    unknown = replace(B200, cudnn_version=None)
    problem = make_problem(softmax=Softmax.LEARNABLE, deterministic=True, d=256, dv=256)
    assert whats(problem, unknown, BACKWARD) == []
    assert whats(make_problem(return_max_logit=True), unknown, FORWARD) == []


def test_every_reason_is_given_at_once(make_problem: MakeProblem) -> None:
    problem = make_problem(d=300, dv=12, dtype=DType.FLOAT32)
    assert whats(problem, H200, BACKWARD) == [
        "query.dtype",
        "query.shape[-1]",
        "value.shape[-1]",
        "query.shape[-1], value.shape[-1]",
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


def test_padding_the_head_dim_is_the_only_remedy_of_its_strides(make_problem: MakeProblem) -> None:
    """A contiguous query of head_dim 7 is not helped by being copied."""
    for direction in (FORWARD, BACKWARD):
        found = whats(make_problem(d=7, dv=7), H200, direction)
        assert found == ["query.shape[-1]", "value.shape[-1]"]
    assert whats(make_problem(d=7), H200, FORWARD) == ["query.shape[-1]"]
    kept = strided(make_problem(dv=7))
    assert {"value.shape[-1]", "query.stride(-1)"} <= set(whats(kept, H200, FORWARD))


def test_r12_the_incoming_gradient_has_strides_of_its_own(make_problem: MakeProblem) -> None:
    problem = make_problem()
    odd = replace(problem.output, strides=(0, 0, 0, 0))
    asked = replace(problem, grad_output=odd)
    assert whats(asked, H200, BACKWARD) == ["grad_output.stride(-1)"]
    assert whats(asked, H200, FORWARD) == []


# ------------------------------------------------------------------------------------ shapes


@pytest.mark.parametrize("head_dim", [8, 264, 512, 1024])
def test_any_multiple_of_8_is_a_head_dim_forward(make_problem: MakeProblem, head_dim: int) -> None:
    for device in (A100, H200, B200, RTX5090):
        assert whats(make_problem(d=head_dim, dv=head_dim), device, FORWARD) == []


def test_no_cudnn_has_a_backward_pass_for_head_dim_512(make_problem: MakeProblem) -> None:
    for device in (A100, H200, B200, RTX5090):
        newest = replace(device, cudnn_version=NEWEST)
        told = words(make_problem(d=512, dv=512), newest, BACKWARD)
        assert "no cuDNN up to 9.28 has more" in told
    told = words(make_problem(d=256, dv=256), B200, BACKWARD)
    assert "256 and 256 (cuDNN >= 9.23.0)" in told
    assert "no cuDNN" not in told


def test_packed_head_dim_256_is_younger_than_dense(make_problem: MakeProblem) -> None:
    device = replace(B200, cudnn_version=92400)
    dense = make_problem(d=256, dv=256)
    assert whats(dense, device, BACKWARD) == []
    assert "256 and 256 (cuDNN >= 9.25.0)" in words(packed(dense), device, BACKWARD)
    assert whats(packed(dense), replace(device, cudnn_version=92500), BACKWARD) == []


def test_one_token_counts_as_the_graph_declares_it(make_problem: MakeProblem) -> None:
    one = make_problem(sq=1, skv=1)
    newest = replace(H200, cudnn_version=NEWEST)
    assert whats(one, newest, FORWARD) == []
    assert whats(make_problem(sq=1, skv=2), newest, BACKWARD) == []
    assert whats(packed(one), newest, BACKWARD) == []  # a bucket of tokens
    assert whats(make_problem(sq=1, skv=1, softmax=Softmax.OFF_BY_ONE), newest, BACKWARD) == []


# ------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
@pytest.mark.parametrize(
    ("band", "excluded"),
    [
        (BOTTOM_RIGHT, True),
        (Band(64, 32, Alignment.BOTTOM_RIGHT), True),
        (Band(64, None, Alignment.BOTTOM_RIGHT), False),
        (CAUSAL, False),
    ],
)
def test_a_right_bound_from_the_bottom_right_stands_alone(
    make_problem: MakeProblem, band: Band, excluded: bool, direction: Direction
) -> None:
    lengths = {"seq_lens_q": True, "seq_lens_kv": True}
    for name, given in {"bias": {"bias": BIAS}, "dropout_p": {"dropout_p": 0.1}}.items():
        problem = make_problem(band=band, **lengths, **given)
        assert whats(problem, H200, direction) == ([name] if excluded else [])
    if band.right == 0:
        problem = make_problem(band=band, alibi=True, **lengths)
        assert whats(problem, H200, direction) == (["alibi"] if excluded else [])
    # A function of the logits takes the band into itself.
    softcap = make_problem(band=band, bias=BIAS, softcap=30.0, **lengths)
    assert whats(softcap, H200, FORWARD) == []


def hint(problem: AttentionProblem, device: DeviceSpec = H200) -> str:
    (reason,) = rules.reasons(problem, device, FORWARD)
    return reason.hint


def test_a_bias_beside_a_mask_from_the_bottom_right_is_named_as_callers_do(
    make_problem: MakeProblem,
) -> None:
    problem = make_problem(band=BOTTOM_RIGHT, bias=BIAS, seq_lens_kv=True)
    told = words(problem, H200, FORWARD)
    assert "bias = given (as bias, mask or attn_mask), needs none with the mask causal" in told
    assert "with the bias alone" in told
    assert "causal_alignment='top_left'" in told


@pytest.mark.parametrize("band", [Band(), Band(64, 32), Band(64, 32, Alignment.BOTTOM_RIGHT)])
def test_given_slopes_take_the_place_of_alibi_with_any_mask(
    make_problem: MakeProblem, band: Band
) -> None:
    lengths = {"seq_lens_q": True, "seq_lens_kv": True}
    refused = make_problem(alibi=True, band=band, **lengths)
    assert "alibi=slopes, a tensor of sdpa_core.alibi.alibi_slopes(4)" in words(
        refused, H200, FORWARD
    )
    slopes = TensorSpec.dense((1, 4, 1, 1), DType.FLOAT32)
    given = make_problem(alibi_slopes=slopes, band=band, **lengths)
    for direction in (FORWARD, BACKWARD):
        assert whats(given, H200, direction) == []


def test_where_slopes_alone_do_not_help_the_rest_is_said(make_problem: MakeProblem) -> None:
    for without in (paged(make_problem(alibi=True)), packed(make_problem(alibi=True))):
        assert hint(without).startswith("dense operands with their lengths, and alibi=slopes")
    with_bias = make_problem(alibi=True, bias=BIAS, bias_grad=True)
    assert hint(with_bias).endswith("a bias without a gradient")


def test_a_bias_is_of_the_querys_type_or_float32(make_problem: MakeProblem) -> None:
    assert whats(make_problem(bias=replace(BIAS, dtype=DType.FLOAT32)), H200, FORWARD) == []
    transposed = replace(BIAS, strides=(4 * 128 * 128, 128 * 128, 1, 128))
    assert whats(make_problem(bias=transposed), H200, FORWARD) == ["bias.stride(-1)"]


# --------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize(
    ("device", "supported"), [(A100, False), (H200, True), (B200, True), (RTX5090, False)]
)
def test_packed_queries_beside_dense_keys_in_training(
    make_problem: MakeProblem, device: DeviceSpec, supported: bool
) -> None:
    problem = packed(make_problem(), "q")
    assert whats(problem, device, BACKWARD) == ([] if supported else ["cu_seqlens_q"])
    assert whats(problem, device, FORWARD) == []
    assert whats(packed(make_problem(), "kv"), device, BACKWARD) == []


@pytest.mark.parametrize("sides", [("q",), ("kv",), ("q", "kv")])
@pytest.mark.parametrize("device", [A100, RTX5090])
def test_packed_sequences_outside_of_data_centers_need_9_18_1(
    make_problem: MakeProblem, device: DeviceSpec, sides: tuple[str, ...]
) -> None:
    problem = packed(make_problem(), *sides)
    assert whats(problem, device, FORWARD) == []
    old = replace(device, cudnn_version=91800)
    assert f"needs >= 9.18.1 for packed sequences on compute capability {device.sm / 10}" in words(
        problem, old, FORWARD
    )


def test_r66_offsets_of_packed_keys_beside_dense_queries_fit_int32(
    make_problem: MakeProblem,
) -> None:
    # [tokens, 4, 64]: 256 elements a token, buckets of 32768 tokens
    assert whats(packed(make_problem(), "kv", rows=2**23 - 32768), H200, FORWARD) == []
    assert whats(packed(make_problem(), "kv", rows=2**23), H200, FORWARD) == ["cu_seqlens_kv"]
    assert whats(packed(make_problem(), "q", "kv", rows=2**23), H200, FORWARD) == []


def test_pages_go_with_neither_training_nor_functions(make_problem: MakeProblem) -> None:
    assert whats(paged(make_problem()), H200, FORWARD) == []
    assert rules.reasons(paged(make_problem()), H200, BACKWARD) == (INFERENCE_ONLY,)
    assert whats(paged(make_problem(softcap=30.0)), H200, FORWARD) == ["page_table"]


# ---------------------------------------------------------------------------------- features


def test_functions_with_lengths_are_trained_everywhere(make_problem: MakeProblem) -> None:
    lengths = make_problem(softcap=30.0, seq_lens_q=True, seq_lens_kv=True)
    for device in (A100, H200, B200, RTX5090):
        assert whats(lengths, device, BACKWARD) == []


def test_versions_of_sinks(make_problem: MakeProblem) -> None:
    problem = make_problem(softmax=Softmax.OFF_BY_ONE)
    assert "needs >= 9.13.1 for a sink" in words(
        problem, replace(H200, cudnn_version=91300), FORWARD
    )
    old = replace(H200, cudnn_version=91701)
    assert whats(problem, old, FORWARD) == []
    assert "needs >= 9.18.0 for a sink of packed" in words(packed(problem), old, FORWARD)


def test_max_logit_needs_9_21(make_problem: MakeProblem) -> None:
    for training in (True, False):
        problem = make_problem(return_max_logit=True, training=training)
        assert "needs >= 9.21.0 for max_logit" in words(problem, H200, FORWARD)
        assert whats(problem, replace(H200, cudnn_version=92100), FORWARD) == []
    assert whats(make_problem(return_max_logit=True), H200, BACKWARD) == []


# --------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    ("device", "what"),
    [(A100, ["deterministic"]), (RTX5090, ["deterministic"]), (H200, []), (B200, [])],
)
def test_deterministic_gradients_of_packed_sequences(
    make_problem: MakeProblem, device: DeviceSpec, what: list[str]
) -> None:
    problem = packed(make_problem(deterministic=True))
    assert whats(problem, device, BACKWARD) == what
    assert whats(problem, device, FORWARD) == []
    assert whats(make_problem(deterministic=True), device, BACKWARD) == []


def test_deterministic_gradients_on_blackwell_stand_alone(make_problem: MakeProblem) -> None:
    others = {
        "bias.requires_grad": {"bias": BIAS, "bias_grad": True},
        "dropout_p": {"dropout_p": 0.1},
        "alibi": {"alibi": True, "band": CAUSAL},
    }
    newer = replace(B200, cudnn_version=92300)  # older ones have more against a bias
    for what, given in others.items():
        problem = make_problem(deterministic=True, **given)
        assert whats(problem, newer, BACKWARD) == [what]
        for device in (A100, H200, RTX5090):
            assert whats(problem, device, BACKWARD) == []


@pytest.mark.parametrize("given", [{"bias": BIAS}, {"softcap": 30.0}], ids=["bias", "function"])
def test_deterministic_gradients_of_changed_logits_on_blackwell_need_9_23(
    make_problem: MakeProblem, given: dict[str, Any]
) -> None:
    problem = make_problem(deterministic=True, **given)
    old, fixed = (replace(B200, cudnn_version=version) for version in (92200, 92300))
    assert "needs >= 9.23.0 for deterministic gradients with" in words(problem, old, BACKWARD)
    assert whats(problem, fixed, BACKWARD) == whats(problem, old, FORWARD) == []
    assert whats(problem, replace(H200, cudnn_version=92200), BACKWARD) == []
    assert whats(make_problem(**given), old, BACKWARD) == []


def test_head_dim_256_on_blackwell_is_always_deterministic(make_problem: MakeProblem) -> None:
    problem = make_problem(d=256, dv=256, dropout_p=0.1)
    newest = replace(B200, cudnn_version=NEWEST)
    assert "needs 0 with head_dim 256 on compute capability 10.x" in words(
        problem, newest, BACKWARD
    )
    assert whats(problem, H200, BACKWARD) == []


@pytest.mark.parametrize(
    ("device", "supported"), [(A100, False), (H200, True), (B200, False), (RTX5090, False)]
)
def test_only_hopper_has_a_bias_gradient_of_packed_sequences(
    make_problem: MakeProblem, device: DeviceSpec, supported: bool
) -> None:
    problem = packed(make_problem(bias=BIAS, bias_grad=True))
    assert whats(problem, device, BACKWARD) == ([] if supported else ["bias.requires_grad"])
    assert whats(packed(make_problem(bias=BIAS)), device, BACKWARD) == []


def test_a_bias_gradient_with_dropout(make_problem: MakeProblem) -> None:
    problem = make_problem(bias=BIAS, bias_grad=True, dropout_p=0.1)
    for device, found in ((A100, []), (H200, []), (B200, ["bias.requires_grad"]), (RTX5090, [])):
        assert whats(problem, device, BACKWARD) == found
