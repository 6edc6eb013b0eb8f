from __future__ import annotations

import numpy as np
import pytest

from sdpa_core.dtypes import DType
from sdpa_core.problem import Softmax
from sdpa_core.testing import (
    CASES,
    MARGIN,
    Case,
    DropoutState,
    assert_close,
    attention,
    attention_backward,
    error_scales,
    expected,
    features_of,
    round_to,
)

ULP = {DType.FLOAT16: 2**-11, DType.BFLOAT16: 2**-8, DType.FLOAT32: 2**-24}

NAMES = ("output", "lse", "grad_query", "grad_key", "grad_value")


def scales_of(case):
    inputs, features = case.arrays(), features_of(case, dropout=DropoutState(5))
    if not case.dropout_p:
        features["dropout"] = None
    bias_dtype = case.effective_bias_dtype
    return error_scales(*inputs.operands, dtype=case.dtype, bias_dtype=bias_dtype, **features)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_scales_are_finite_and_of_the_results_shapes(case):
    scales = {n: scale for n, scale in scales_of(case)._asdict().items() if scale is not None}
    shapes = {
        "output": case.output_shape,
        "lse": case.output_shape[:3],
        "max_logit": (case.heads,),
        "grad_query": case.query_shape,
        "grad_key": case.key_shape,
        "grad_value": case.value_shape,
    }
    if case.bias is not None:
        shapes["grad_bias"] = case.shape_of(case.bias)
    if case.softmax is Softmax.LEARNABLE:
        shapes["grad_sink"] = (case.heads,)
    assert {name: scale.shape for name, scale in scales.items()} == shapes
    assert all(np.isfinite(scale).all() and (scale >= 0).all() for scale in scales.values())


def test_inference_needs_no_gradient():
    query, key, value, _ = Case("inference").arrays().operands
    scales = error_scales(query, key, value, dtype=DType.BFLOAT16)
    assert scales.grad_query is scales.grad_key is scales.grad_value is None


@pytest.mark.parametrize("dtype", ULP, ids=str)
def test_scales_are_a_few_roundings_on_normal_data(dtype):
    case = Case("normal", dtype=dtype)
    exact, scales = expected(case)
    ratios = {
        name: np.sqrt(np.mean(scales[name] ** 2) / np.mean(exact[name] ** 2)) / ULP[dtype]
        for name in NAMES
        if name != "lse"
    }
    if dtype is DType.FLOAT32:
        # There the logits' own rounding shows: their terms sum up to about 5.
        assert all(1 < ratio < 100 for ratio in ratios.values()), ratios
    else:
        assert all(1 < ratio < 3 for ratio in ratios.values()), ratios


def test_the_lse_is_good_to_float32_in_every_type():
    for dtype in ULP:
        assert scales_of(Case("lse", dtype=dtype)).lse.max() < 1e-5


def test_a_sum_that_cancels_is_measured_by_its_terms():
    """Nearly equal keys: dQ is what remains of terms a hundred times as large."""
    case = Case("cancelling", tokens_q=64, tokens_kv=64, logits="very_negative")
    grad_query = attention_backward(*case.arrays().operands).grad_query
    relative = np.linalg.norm(scales_of(case).grad_query) / np.linalg.norm(grad_query)
    assert 0.1 < relative < 1.0


def test_a_key_of_no_weight_costs_no_accuracy():
    """A bias of the lowest finite number hides: the other keys' rows stay as exact as before."""
    bias = np.zeros((1, 1, 1, 48))
    bias[..., 40:] = -3e38
    inputs, heavy = Case("weights").arrays(), np.zeros((1, 1, 1, 48))
    scales = error_scales(*inputs.operands, dtype=DType.FLOAT32, bias=bias)
    plain = error_scales(*inputs.operands, dtype=DType.FLOAT32, bias=heavy)
    assert scales.lse.max() < 2 * plain.lse.max()
    assert scales.grad_key.max() < 3 * plain.grad_key.max()


def test_rows_whose_lse_float32_cannot_resolve_are_not_judged():
    lowest = np.full((1, 1, 1, 48), -3e38)
    case = Case("unresolved", dtype=DType.FLOAT32)
    scales = error_scales(*case.arrays().operands, dtype=DType.FLOAT32, bias=lowest)
    assert scales.grad_value.min() > 1.0
    assert scales.output.max() < 2.0


def test_features_leave_their_mark():
    case = Case("features", tokens_q=20, dtype=DType.FLOAT32)
    query, key, value, grad = case.arrays().operands

    def scales(**features):
        return error_scales(query, key, value, grad, dtype=DType.FLOAT32, **features)

    short = scales(lengths_q=[20, 7], lengths_kv=[48, 11])
    assert (short.output[1, :, 7:] == 0).all()
    assert (short.grad_key[1, :, 11:] < 1e-30).all()
    capped = scales(softcap=0.1)
    assert capped.grad_query.mean() < scales().grad_query.mean()
    sunk = scales(softmax=Softmax.LEARNABLE, sink=[100.0, 0.0])
    assert sunk.lse[:, 0].min() > 5 * sunk.lse[:, 1].max()


def test_zero_is_expected_exactly_up_to_underflow():
    case = Case("zero", scale=0.0, dtype=DType.BFLOAT16)
    assert scales_of(case).grad_query.max() < 1e-30


@pytest.mark.parametrize("dtype", ULP, ids=str)
def test_a_rounded_oracle_is_within_one_scale(dtype):
    case = Case("rounded", dtype=dtype)
    query, key, value, _ = case.arrays().operands
    output = attention(query, key, value).output
    assert_close("output", round_to(output, dtype), output, scales_of(case).output, margin=1.0)


def test_assert_close_accepts_up_to_the_margin():
    assert_close("output", [1.0 + MARGIN * 0.01], [1.0], [0.0100001])
    assert_close("lse", [-np.inf, 1.0], [-np.inf, 1.0], 0.0)
    assert_close("output", np.zeros((0, 3)), np.zeros((0, 3)), 1.0)


@pytest.mark.parametrize(
    ("actual", "exact", "message"),
    [
        ([[1.0, 2.5]], [[1.0, 2.0]], r"output\[0, 1\] is 2.5, expected 2: error 0.5 is 12.5 times"),
        ([1.0, np.nan], [1.0, 1.0], r"output\[1\] is nan, expected 1"),
        ([0.0], [-np.inf], r"output\[0\] is 0, expected -inf"),
        ([-np.inf], [0.0], r"output\[0\] is -inf, expected 0"),
        ([np.inf], [-np.inf], r"output\[0\] is inf"),
        ([9.0, 5.0, 1.0], [1.0, 1.0, 1.0], r"output\[0\] .*; 2 of 3 elements are wrong"),
        ([1.0], [1.0, 1.0], r"output has shape \[1\], expected \[2\]"),
    ],
)
def test_assert_close_says_where_and_how_much(actual, exact, message):
    with pytest.raises(AssertionError, match=message):
        assert_close("output", actual, exact, 0.01)
