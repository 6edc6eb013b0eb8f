"""The benchmark's rows, the order and the clock of its measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.rows import ROWS, Row, chosen
from bench.timing import Plan, Work, host_clock, measure, median_of_medians, schedule, spread


class TestRows:
    def test_flops(self):
        full = Row(2, 4, 2, 10, 8, causal=False)
        assert full.flops("forward") == 4 * 2 * 4 * 10 * 10 * 8
        assert full.flops("backward") == 2.5 * full.flops("forward")
        assert replace(full, causal=True).flops("forward") == full.flops("forward") / 2

    def test_tflops(self):
        row = Row(1, 1, 1, 1000, 250, causal=False)  # 1e9 operations
        assert row.tflops("forward", 1.0) == pytest.approx(1.0)

    def test_names_are_unique(self):
        assert len({row.name for row in ROWS}) == len(ROWS) == 8

    def test_choice(self):
        assert chosen([]) == ROWS
        assert [row.tokens for row in chosen(["16384", ",512,"])] == [16384, 512]
        with pytest.raises(ValueError, match="no row matches 'x'"):
            chosen(["x"])


class TestTiming:
    def test_every_peer_gets_every_sample_and_every_place(self):
        plan = Plan(rounds=2, samples=3)
        order = list(schedule(["a", "b", "c"], plan))
        for number in range(2):
            names = [name for found, name in order if found == number]
            turns = [names[i : i + 3] for i in range(0, 9, 3)]
            assert all(set(turn) == {"a", "b", "c"} for turn in turns)

    def test_nobody_keeps_a_neighbour(self):
        names = [name for _, name in schedule(["a", "b", "c", "d"], Plan(rounds=3, samples=7))]
        before = {names[i - 1] for i in range(1, len(names)) if names[i] == "a"}
        assert before >= {"b", "c", "d"}

    def test_the_order_is_the_same_in_every_run(self):
        plan = Plan(rounds=2, samples=3)
        assert list(schedule("abc", plan)) == list(schedule("abc", plan))

    def test_no_peers(self):
        assert measure({}, Plan()) == {}

    def test_samples_keep_their_round(self):
        values = iter(range(100))
        samples = measure({"a": lambda: float(next(values))}, Plan(rounds=2, samples=2))
        assert samples == {"a": [[0.0, 1.0], [2.0, 3.0]]}

    def test_median_of_medians(self):
        assert median_of_medians([[1, 2, 9], [4, 4, 4], [3, 3, 100]]) == 3
        assert spread([[1, 2, 9], [3, 3, 3]]) == 0.5

    @pytest.mark.parametrize(("milliseconds", "launches"), [(29.0, 1), (5.0, 4), (0.0, 200)])
    def test_launches(self, milliseconds, launches):
        assert Plan(batch_ms=20, max_launches=200).launches(milliseconds) == launches

    def test_a_scope_is_entered_once(self):
        events = []

        class Scope:
            def __enter__(self):
                events.append("in")

            def __exit__(self, *error):
                events.append("out")

        assert Work(lambda: events.append("call") or "result", Scope)(2) == "result"
        assert events == ["in", "call", "call", "out"]

    def test_the_host_clock_waits_outside_of_the_measured_time(self):
        events = []
        host_clock(Work(lambda: events.append("call")), lambda: events.append("wait"), 2)()
        assert events == ["wait", "call", "call", "wait"]
