"""The benchmark's comparison of peers, with peers that only pretend to compute."""

from __future__ import annotations

import pytest
from bench import report
from bench.compare import TOLERANCE
from fake_peers import TIMES, Fake, compared, compared_all


@pytest.fixture
def comparison():
    return compared_all()


class TestCompare:
    def test_the_ratio_is_to_the_faster_of_the_rivals(self, comparison):
        assert comparison.ratio == pytest.approx(1.04)
        assert comparison.faults == []
        assert comparison.launches == 7
        assert comparison.noise == 0.0

    def test_who_cannot_run_is_left_out(self, comparison):
        assert comparison.unavailable == {"absent": "not installed"}
        assert comparison.milliseconds("absent") is None

    def test_a_rival_that_fails_is_no_fault(self):
        failing = Fake("pygraph", error=RuntimeError("two\nlines"))
        found = compared(Fake("sdpa_torch"), failing, times=TIMES)
        assert found.unavailable == {"pygraph": "RuntimeError: two lines"}
        assert found.faults == []
        assert found.ratio is None

    def test_our_failure_is_a_fault(self):
        failing = Fake("sdpa_torch", error=RuntimeError("no plan"))
        found = compared(failing, Fake("pygraph"), times=TIMES)
        assert "sdpa_torch: RuntimeError: no plan" in found.faults[0]

    @pytest.mark.parametrize("value", [1 + 2 * TOLERANCE, float("nan")])
    def test_a_wrong_result_is_a_fault(self, value):
        found = compared(Fake("sdpa_torch"), Fake("pygraph", value), times=TIMES)
        assert "pygraph differs from sdpa_torch" in found.faults[0]

    def test_nobody(self):
        found = compared(Fake("sdpa_torch", reason="no GPU"), times=TIMES)
        assert found.samples == {}
        assert found.faults
        assert report.tables([found])
