from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from sdpa_core.philox import PhiloxState, keep_probability, keep_threshold
from sdpa_core.testing.philox_bits import keep_mask


@pytest.mark.parametrize(
    ("seed", "offset", "p", "batch", "heads", "sq", "skv"),
    [
        (0, 0, 0.5, 1, 1, 1, 1),
        (5, 16, 0.3, 2, 3, 37, 53),
        (2**63 + 9, 4096, 0.1, 1, 2, 16, 48),
        (-7, 2**34 - 4, 0.5, 1, 2, 1, 17),  # the counter's first word wraps around
        (5, 2**63 - 4096, 0.5, 1, 2, 1, 17),
        (1, 4, 0.9, 2, 1, 33, 8),
    ],
)
def test_the_formula_one_decision_at_a_time(seed, offset, p, batch, heads, sq, skv):
    state, threshold = PhiloxState(seed % 2**64, offset), keep_threshold(p)
    expected = [
        state.bits(n, i, j, sq) <= threshold
        for n in range(batch * heads)
        for i in range(sq)
        for j in range(skv)
    ]
    mask = keep_mask(seed, offset, p, batch, heads, sq, skv)
    assert mask.dtype == np.bool_
    assert mask.shape == (batch, heads, sq, skv)
    assert mask.ravel().tolist() == expected


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keep_rate(p):
    """Within 5 standard deviations; four rows share a decision, so there are fewer of them."""
    mask = keep_mask(2025, 64, p, 2, 4, 512, 512)
    rate = keep_probability(p)
    deviation = math.sqrt(rate * (1 - rate) / (mask.size / 4))
    assert abs(mask.mean() - rate) < 5 * deviation


def test_rows_share_decisions_in_fours():
    groups = keep_mask(1, 0, 0.5, 1, 2, 64, 96).reshape(1, 2, 8, 4, 2, 96)
    np.testing.assert_array_equal(groups, np.broadcast_to(groups[:, :, :, :1], groups.shape))
    even, odd = groups[:, :, :, 0, 0], groups[:, :, :, 0, 1]
    assert 0.4 < (even == odd).mean() < 0.6
    assert 0.4 < (even[:, :, 1:] == even[:, :, :-1]).mean() < 0.6


def test_heads_columns_and_seeds_differ():
    mask = keep_mask(1, 0, 0.5, 2, 2, 64, 64).reshape(4, 64, 64)
    pairs = [(a, b) for a in range(4) for b in range(a)]
    assert all(0.4 < (mask[a] == mask[b]).mean() < 0.6 for a, b in pairs)
    assert 0.4 < (mask[:, :, 1:] == mask[:, :, :-1]).mean() < 0.6
    other = keep_mask(1 + 2**32, 0, 0.5, 2, 2, 64, 64).reshape(4, 64, 64)
    assert 0.4 < (mask == other).mean() < 0.6


def test_consecutive_calls_are_unlike():
    state = PhiloxState(3)
    later = state.advance(2, 2)
    first = keep_mask(state.seed, state.offset, 0.5, 2, 2, 64, 64)
    second = keep_mask(later.seed, later.offset, 0.5, 2, 2, 64, 64)
    assert 0.4 < (first == second).mean() < 0.6


def test_nothing_is_dropped_without_dropout():
    assert keep_mask(1, 0, 0.0, 1, 2, 32, 32).all()


@pytest.mark.parametrize("shape", [(0, 2, 8, 8), (1, 0, 8, 8), (1, 2, 0, 8), (1, 2, 8, 0)])
def test_empty(shape):
    assert keep_mask(1, 0, 0.5, *shape).shape == shape


def test_memory_is_mostly_the_result():
    tracemalloc.start()
    try:
        mask = keep_mask(1, 0, 0.1, 2, 4, 1024, 1024)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * mask.nbytes


def test_refusals():
    with pytest.raises(ValueError, match="offset is 6"):
        keep_mask(1, 6, 0.5, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="dropout_p is 1"):
        keep_mask(1, 0, 1.0, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="seed is"):
        keep_mask(2**64, 0, 0.5, 1, 1, 1, 1)
