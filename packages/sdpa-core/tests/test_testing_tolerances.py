from __future__ import annotations

import numpy as np
import pytest

from sdpa_core.dtypes import DType
from sdpa_core.testing import (
    CASES,
    MARGIN,
    Case,
    assert_close,
    attention,
    attention_backward,
    error_scales,
    round_to,
)

ULP = {DType.FLOAT16: 2**-11, DType.BFLOAT16: 2**-8, DType.FLOAT32: 2**-24}

NAMES = ("output", "lse", "grad_query", "grad_key", "grad_value")


def scales_of(case):
    return error_scales(*case.arrays(), dtype=case.dtype, band=case.band, scale=case.scale)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_scales_are_finite_and_of_the_results_shapes(case):
    scales = scales_of(case)
    shapes = (case.output_shape, case.output_shape[:3])
    shapes += (case.query_shape, case.key_shape, case.value_shape)
    assert tuple(scale.shape for scale in scales) == shapes
    assert all(np.isfinite(scale).all() and (scale >= 0).all() for scale in scales)


def test_inference_needs_no_gradient():
    query, key, value, _ = Case("inference").arrays()
    scales = error_scales(query, key, value, dtype=DType.BFLOAT16)
    assert scales.grad_query is scales.grad_key is scales.grad_value is None


@pytest.mark.parametrize("dtype", ULP, ids=str)
def test_scales_are_a_few_roundings_on_normal_data(dtype):
    case = Case("normal", dtype=dtype)
    inputs = case.arrays()
    exact = (*attention(*inputs[:3]), *attention_backward(*inputs))
    ratios = {
        name: np.sqrt(np.mean(scale**2) / np.mean(result**2)) / ULP[dtype]
        for name, scale, result in zip(NAMES, scales_of(case), exact, strict=True)
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
    grad_query = attention_backward(*case.arrays()).grad_query
    relative = np.linalg.norm(scales_of(case).grad_query) / np.linalg.norm(grad_query)
    assert 0.1 < relative < 1.0


def test_zero_is_expected_exactly_up_to_underflow():
    case = Case("zero", scale=0.0, dtype=DType.BFLOAT16)
    assert scales_of(case).grad_query.max() < 1e-30


@pytest.mark.parametrize("dtype", ULP, ids=str)
def test_a_rounded_oracle_is_within_one_scale(dtype):
    case = Case("rounded", dtype=dtype)
    query, key, value, _ = case.arrays()
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
