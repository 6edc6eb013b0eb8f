from __future__ import annotations

import re

import pytest

from sdpa_core import DType, TensorSpec, check_operands, default_scale, flag, positive_scale
from sdpa_core.validate import shown

D = DType.BFLOAT16


def spec(*shape: int, dtype: DType = D) -> TensorSpec:
    return TensorSpec.dense(shape, dtype)


GOOD = (spec(2, 4, 8, 16), spec(2, 2, 9, 16), spec(2, 2, 9, 24))


def test_a_good_problem_passes() -> None:
    check_operands(*GOOD)


@pytest.mark.parametrize(
    ("index", "wrong", "error", "text"),
    [
        (0, spec(2, 4, 8, 16, dtype=DType.INT32), TypeError, "query has dtype int32"),
        (1, spec(2, 2, 9, 16, dtype=DType.FLOAT16), TypeError, "key has dtype float16, query"),
        (2, spec(2, 2, 9, 24, dtype=DType.FLOAT32), TypeError, "value has dtype float32, query"),
        (0, spec(4, 8, 16), ValueError, "query has shape [4, 8, 16]; expected 4 axes"),
        (1, spec(3, 2, 9, 16), ValueError, "key has batch size 3, query has 2"),
        (2, spec(1, 2, 9, 24), ValueError, "value has batch size 1, query has 2"),
        (1, spec(2, 3, 9, 16), ValueError, "value has 2 heads, key has 3"),
        (0, spec(2, 3, 8, 16), ValueError, "query has 3 heads, key has 2"),
        (2, spec(2, 2, 7, 24), ValueError, "value has 7 tokens, key has 9"),
        (1, spec(2, 2, 9, 32), ValueError, "key has head_dim 32, query has 16"),
    ],
)
def test_a_wrong_operand_is_named(
    index: int, wrong: TensorSpec, error: type[Exception], text: str
) -> None:
    operands = list(GOOD)
    operands[index] = wrong
    with pytest.raises(error, match=re.escape(text)):
        check_operands(*operands)


def test_no_key_head_for_some_query_heads() -> None:
    with pytest.raises(ValueError, match="query has 4 heads, key has 0"):
        check_operands(spec(2, 4, 8, 16), spec(2, 0, 9, 16), spec(2, 0, 9, 16))


def test_default_scale() -> None:
    assert default_scale(64) == 0.125
    assert default_scale(0) == 1.0


@pytest.mark.parametrize("scale", [0.125, -0.3, 0.0, -0.0, 1e-30, -1e30])
def test_kernels_see_positive_scales_only(scale: float) -> None:
    factor, positive = positive_scale(scale)
    assert factor in (1.0, -1.0, 0.0)
    assert positive > 0
    assert factor * positive == scale


@pytest.mark.parametrize("scale", [1e-46, -1e-45, 1e-39])
def test_what_float32_flushes_is_zero(scale: float) -> None:
    assert positive_scale(scale) == (0.0, 1.0)


@pytest.mark.parametrize("scale", [1e39, -1e39, float("inf"), float("nan")])
def test_what_float32_cannot_hold_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=r"scale = .*finite in float32"):
        positive_scale(scale)


@pytest.mark.parametrize("power", [400, 5000])
def test_long_numbers_are_cut_in_errors(power: int) -> None:
    """Python itself refuses to write ints of more than 4300 digits."""
    with pytest.raises(ValueError, match=r"^scale = .*finite in float32$") as refusal:
        positive_scale(10**power)
    assert len(str(refusal.value)) < 120
    with pytest.raises(TypeError, match=r"^is_causal is .*; expected True or False$") as refusal:
        flag("is_causal", 10**power)
    assert len(str(refusal.value)) < 120


def test_short_values_are_shown_as_they_are() -> None:
    assert [shown(2.5), shown("a"), shown("a", repr)] == ["2.5", "a", "'a'"]
    assert shown(10**400) == f"1{'0' * 29}... (401 characters)"
