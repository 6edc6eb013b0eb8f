from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sdpa_core import Alignment, Band

BOUNDS = st.none() | st.integers(0, 12)
LENGTHS = st.integers(1, 10)


def visible(band: Band, sq: int, skv: int) -> NDArray[np.bool_]:
    """The definition of the class's docstring, spelled out."""
    shift = skv - sq if band.alignment is Alignment.BOTTOM_RIGHT else 0
    i, j = np.arange(sq)[:, None] + shift, np.arange(skv)
    seen = np.ones((sq, skv), bool)
    if band.left is not None:
        seen &= j >= i - band.left
    if band.right is not None:
        seen &= j <= i + band.right
    return seen


@given(BOUNDS, BOUNDS, st.sampled_from(Alignment), LENGTHS, LENGTHS)
def test_normalizing_hides_the_same_keys(
    left: int | None, right: int | None, alignment: Alignment, sq: int, skv: int
) -> None:
    band = Band(left, right, alignment)
    normal = band.normalized(sq, skv)
    np.testing.assert_array_equal(visible(band, sq, skv), visible(normal, sq, skv))
    assert normal.normalized(sq, skv) == normal


@given(BOUNDS, BOUNDS, st.sampled_from(Alignment), LENGTHS, LENGTHS)
def test_a_band_that_hides_nothing_is_full(
    left: int | None, right: int | None, alignment: Alignment, sq: int, skv: int
) -> None:
    band = Band(left, right, alignment)
    if visible(band, sq, skv).all():
        assert band.normalized(sq, skv).is_full


@pytest.mark.parametrize(
    ("band", "sq", "skv", "normal"),
    [
        (Band.causal(), 8, 8, Band(None, 0)),
        (Band.causal(Alignment.BOTTOM_RIGHT), 8, 8, Band(None, 0)),
        (Band.causal(Alignment.BOTTOM_RIGHT), 4, 8, Band(None, 4)),
        (Band.causal(Alignment.BOTTOM_RIGHT), 1, 8, Band()),  # decoding sees the whole cache
        (Band.causal(), 1, 1, Band()),
        (Band.causal(Alignment.BOTTOM_RIGHT), 8, 4, Band(None, 0, Alignment.BOTTOM_RIGHT)),
    ],
)
def test_spellings(band: Band, sq: int, skv: int, normal: Band) -> None:
    assert band.normalized(sq, skv) == normal
