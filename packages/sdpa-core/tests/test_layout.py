from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_core import DType, TensorSpec
from sdpa_core.layout import (
    canonical_strides,
    dense_in_order,
    dense_like,
    physical_order,
    reachable,
    row_major,
)

SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=5).map(tuple)


@given(SHAPES)
def test_row_major_is_numpys(shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.uint8)
    if array.size:
        expected = tuple(s for s, n in zip(array.strides, shape, strict=True) if n > 1)
        assert tuple(s for s, n in zip(row_major(shape), shape, strict=True) if n > 1) == expected


@given(st.permutations(range(4)), st.tuples(*[st.integers(1, 4)] * 4))
def test_dense_strides_in_any_order_are_dense(order: list[int], shape: tuple[int, ...]) -> None:
    strides = dense_in_order(shape, order)
    assert reachable(shape, strides) == np.prod(shape)
    addresses = {
        sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(shape)
    }
    assert addresses == set(range(int(np.prod(shape))))


@pytest.mark.parametrize(
    ("shape", "strides", "order"),
    [
        ((2, 3, 5, 8), (120, 40, 8, 1), (0, 1, 2, 3)),
        ((2, 3, 5, 8), (120, 8, 24, 1), (0, 2, 1, 3)),
        ((2, 3, 5, 8), (8, 16, 48, 1), (2, 1, 0, 3)),
        # A length-1 axis keeps its place whatever its stride says.
        ((1, 3, 5, 8), (1, 8, 24, 1), (0, 2, 1, 3)),
        # An expanded axis says nothing about memory (pytorch PR 175764).
        ((2, 3, 5, 8), (0, 0, 8, 1), (0, 1, 2, 3)),
    ],
)
def test_physical_order(
    shape: tuple[int, ...], strides: tuple[int, ...], order: tuple[int, ...]
) -> None:
    assert physical_order(shape, strides) == order


def test_dense_like_keeps_the_order_of_a_packed_view() -> None:
    """Query of a packed [B, S, 3, H, D] buffer: the output is [B, S, H, D]."""
    shape, packed = (2, 4, 16, 8), (16 * 3 * 32, 8, 3 * 32, 1)
    assert dense_like(shape, shape, packed) == (16 * 32, 8, 32, 1)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 1, 5, 8), (40, 1, 8, 1), (40, 80, 8, 1)),
        ((2, 1, 5, 8), (40, 999, 8, 1), (40, 80, 8, 1)),
        ((1, 1, 1, 8), (3, 5, 7, 1), (8, 8, 8, 1)),
        ((2, 3, 5, 1), (15, 5, 1, 7), (15, 5, 1, 1)),
        ((2, 0, 5, 8), (1, 2, 3, 4), (40, 40, 8, 1)),
    ],
)
def test_length_one_axes_have_one_spelling(
    shape: tuple[int, ...], strides: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert canonical_strides(shape, strides) == expected


@given(st.tuples(*[st.integers(1, 3)] * 4), st.tuples(*[st.integers(0, 40)] * 4))
def test_canonical_strides_address_the_same_elements(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    canonical = canonical_strides(shape, strides)
    for index in np.ndindex(*shape):
        assert np.dot(index, strides) == np.dot(index, canonical)
    assert canonical_strides(shape, canonical) == canonical


def test_nbytes_reaches_from_the_first_to_the_last_element() -> None:
    view = TensorSpec((2, 3, 4, 8), (1000, 8, 24, 1), DType.BFLOAT16)
    assert view.nbytes == 2 * (1000 + 2 * 8 + 3 * 24 + 7 + 1)
    assert TensorSpec.dense((2, 0, 4, 8), DType.FLOAT16).nbytes == 0
