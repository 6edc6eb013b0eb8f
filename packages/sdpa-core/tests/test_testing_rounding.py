from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_core.dtypes import DType
from sdpa_core.testing import decode, encode, round_to

FLOATING = [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64]
floats = st.floats(width=64)


@given(floats)
def test_float16_and_float32_are_numpys(x):
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(round_to(x, DType.FLOAT16), np.float64(np.float16(x)))
        np.testing.assert_array_equal(round_to(x, DType.FLOAT32), np.float64(np.float32(x)))


@given(st.floats(width=32))
def test_bfloat16_is_the_upper_half_of_a_float32_rounded_to_even(x):
    rounded = float(round_to(x, DType.BFLOAT16))
    if np.isnan(x):
        assert np.isnan(rounded)
        return
    bits = int(np.float32(x).view(np.uint32))
    bits += 0x7FFF + (bits >> 16 & 1)
    expected = np.uint32(bits >> 16 << 16).view(np.float32)
    assert rounded == expected
    assert np.signbit(rounded) == np.signbit(expected)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1 + 2**-8, 1.0),  # a tie goes to the even neighbour
        (1 + 3 * 2**-8, 1 + 2**-6),
        (1 + 2**-8 + 2**-40, 1 + 2**-7),  # float32 would make it a tie first
        (2.0**-133, 2.0**-133),  # the smallest subnormal number
        (2.0**-134, 0.0),
        (-(2.0**128), -np.inf),
        (np.inf, np.inf),
    ],
)
def test_bfloat16_by_hand(x, expected):
    assert round_to(x, DType.BFLOAT16) == expected


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@given(x=floats)
def test_stored_bits_hold_the_rounded_number(dtype, x):
    stored = encode(np.array([x]), dtype)
    assert stored.itemsize == dtype.itemsize
    np.testing.assert_array_equal(decode(stored, dtype), round_to([x], dtype))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@given(x=floats)
def test_rounding_twice_is_rounding_once(dtype, x):
    once = round_to(x, dtype)
    np.testing.assert_array_equal(round_to(once, dtype), once)
