from __future__ import annotations

import math

import numpy as np
import pytest

from sdpa_core.philox import (
    PhiloxState,
    keep_probability,
    keep_scale,
    keep_threshold,
    philox4x32,
)

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


@pytest.mark.parametrize(
    ("rounds", "counter", "key", "expected"),
    [
        (7, (0,) * 4, (0,) * 2, "5f6fb709 0d893f64 4f121f81 4f730a48"),
        (7, (ONES,) * 4, (ONES,) * 2, "5207ddc2 45165e59 4d8ee751 8c52f662"),
        (7, PI, (0xA4093822, 0x299F31D0), "4dfccaba 190a87f0 c47362ba b6b5242a"),
        (10, (0,) * 4, (0,) * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (10, (ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (10, PI, (0xA4093822, 0x299F31D0), "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_known_answers_of_random123(rounds, counter, key, expected):
    assert " ".join(f"{word:08x}" for word in philox4x32(counter, key, rounds)) == expected


def test_seven_rounds_by_default():
    assert philox4x32(PI, (1, 2)) == philox4x32(PI, (1, 2), 7)


class TestState:
    @pytest.mark.parametrize("seed", [-1, 2**64])
    def test_seed_out_of_range(self, seed):
        with pytest.raises(ValueError, match=r"seed is .*2\*\*64"):
            PhiloxState(seed)

    @pytest.mark.parametrize("offset", [-4, 2**63])
    def test_offset_out_of_range(self, offset):
        with pytest.raises(ValueError, match=r"offset is .*2\*\*63"):
            PhiloxState(0, offset)

    @pytest.mark.parametrize("offset", [1, 2, 3, 4097])
    def test_offset_between_counters(self, offset):
        with pytest.raises(ValueError, match=r"offset is .* multiple of 4"):
            PhiloxState(0, offset)

    @pytest.mark.parametrize("value", [1.0, True, None, np.int64(4)])
    def test_not_an_int(self, value):
        with pytest.raises(TypeError, match="seed is a"):
            PhiloxState(value)
        with pytest.raises(TypeError, match="offset is a"):
            PhiloxState(0, value)

    @pytest.mark.parametrize("seed", [0, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
    def test_an_int64_buffer_holds_the_seed(self, seed):
        stored = np.array([PhiloxState(seed).signed_seed], np.int64)
        assert int(stored.view(np.uint64)[0]) == seed
        low, high = PhiloxState(seed).key
        assert stored.view(np.uint32).tolist() == [low, high]

    def test_by_hand(self):
        """Row 9, column 29 of head 3, of 40 rows: second half of both tiles, odd row."""
        state = PhiloxState((7 << 32) + 5, 16)
        assert state.counter(3, 9, 29, 40) == (16 // 4 + 8 * 3 + 5, 0, 0 + 3 * 1, 0)
        words = philox4x32((33, 0, 3, 0), (5, 7))
        assert state.bits(3, 9, 29, 40) == words[3] >> 16
        assert state.bits(3, 8, 29, 40) == words[3] & 0xFFFF
        assert state.bits(3, 0, 16 + 5, 40) == words[0] & 0xFFFF
        assert state.bits(3, 0, 16 + 13, 40) == words[1] & 0xFFFF
        assert state.bits(3, 8, 16 + 5, 40) == words[2] & 0xFFFF


def counters(state: PhiloxState, batch: int, heads: int, tokens: int) -> set[tuple[int, ...]]:
    return {
        state.counter(n, i, j, tokens)
        for n in range(batch * heads)
        for i in range(0, tokens, 16)
        for j in range(tokens)
    }


class TestAdvance:
    @pytest.mark.parametrize(("batch", "heads"), [(1, 1), (2, 3)])
    @pytest.mark.parametrize("tokens", [1, 40])
    def test_no_two_calls_share_bits(self, batch, heads, tokens):
        """Whatever their sizes: the second call may have other lengths and heads."""
        state = PhiloxState(11, 4096)
        later = state.advance(batch, heads)
        taken = counters(state, batch, heads, tokens)
        for other in (1, 33, 40):
            assert not taken & counters(later, batch + 1, heads, other)

    def test_no_bit_is_skipped(self):
        state = PhiloxState(11)
        last = state.counter(2 * 3 - 1, 0, 7, 1)[0]
        assert state.advance(2, 3).counter(0, 0, 0, 1)[0] == last + 1

    def test_sixteen_would_repeat_bits(self):
        """TransformerEngine's step: half of a head's columns meet the previous call again."""
        state, later = PhiloxState(11), PhiloxState(11, 16)
        assert later.counter(0, 3, 1, 64) == state.counter(0, 3, 5, 64)
        assert later.counter(0, 3, 5, 64) == state.counter(1, 3, 1, 64)

    def test_keeps_the_seed(self):
        assert PhiloxState(2**64 - 1, 8).advance(2, 4) == PhiloxState(2**64 - 1, 8 + 32 * 8)

    def test_does_not_wrap_around(self):
        last = PhiloxState(0, 2**63 - 64)
        assert last.advance(1, 1).offset == 2**63 - 32
        with pytest.raises(ValueError, match=r"offset .* another seed"):
            last.advance(1, 2)

    def test_the_offset_carries_into_the_second_word(self):
        """H200, cuDNN 9.19: offsets of 2^34 - 16, 2^34 + 16 and 2^40 + 16."""
        assert PhiloxState(0, 2**34 - 16).counter(1, 0, 0, 1)[:2] == (4, 1)
        assert PhiloxState(0, 2**40 + 16).counter(0, 0, 0, 1)[:2] == (4, 64)

    def test_arguments(self):
        with pytest.raises(ValueError, match="heads is -1"):
            PhiloxState(0).advance(1, -1)
        with pytest.raises(TypeError, match="batch is a float"):
            PhiloxState(0).advance(1.0, 1)
        assert PhiloxState(0, 4).advance(0, 8) == PhiloxState(0, 4)


class TestProbability:
    @pytest.mark.parametrize(
        ("p", "threshold"),
        [
            (0, 65536),
            (0.0, 65536),
            (2.0**-17, 65535),
            (2.0**-16, 65535),
            (1.5 * 2.0**-16, 65534),
            (0.1, 58982),
            (0.25, 49152),
            (0.5, 32768),
            (1 - 2.0**-16, 1),
            (1 - 2.0**-17, 0),
            (1 - 2.0**-24, 0),
        ],
    )
    def test_threshold(self, p, threshold):
        assert keep_threshold(p) == threshold

    @pytest.mark.parametrize("p", [0.0, 2.0**-17, 2.0**-16])
    def test_tiny_probabilities_drop_nothing(self, p):
        assert keep_probability(p) == 1

    @pytest.mark.parametrize("p", [1.5 * 2.0**-16, 0.1, 0.5, 0.9, 1 - 2.0**-20])
    def test_kept_bits_counted(self, p):
        kept = np.count_nonzero(np.arange(65536) <= keep_threshold(p))
        assert keep_probability(p) == kept / 65536
        assert 1 - p < keep_probability(p) <= 1 - float(np.float32(p)) + 2.0**-16

    @pytest.mark.parametrize("p", [0.0, 1e-9, 0.1, 0.3, 1 / 3, 0.5, 0.99, 1 - 2.0**-24])
    def test_scale_is_the_frontends_float32(self, p):
        one = np.float32(1)
        assert keep_scale(p) == float(one / (one - np.float32(p)))

    def test_the_threshold_is_computed_in_float32(self):
        """H200, cuDNN 9.19, forward and backward: float64 would give the next lower threshold."""
        for p, threshold in ((2.0**-16 + 2.0**-30, 65535), (0.25 + 2.0**-25, 49152)):
            assert math.floor((1 - float(np.float32(p))) * 65536) == threshold - 1
            assert keep_threshold(p) == threshold

    @pytest.mark.parametrize("function", [keep_threshold, keep_probability, keep_scale])
    def test_refusals(self, function):
        for p in (-0.1, 1, 1.0, 1 - 2.0**-30, math.nan, math.inf):
            with pytest.raises(ValueError, match="dropout_p is"):
                function(p)
        for p in (None, "0.1", True):
            with pytest.raises(TypeError, match="dropout_p is a"):
                function(p)
