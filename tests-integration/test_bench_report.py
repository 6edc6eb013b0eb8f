"""What the benchmark keeps of a comparison: files, tables and the page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from bench import report, results
from bench.compare import Comparison
from bench.render import page
from fake_peers import compared_all


@pytest.fixture
def comparison():
    return compared_all()


class TestFiles:
    def test_json_keeps_everything(self, comparison):
        saved = json.loads(json.dumps(comparison.to_json()))
        assert saved.keys() == {
            *("kind", "framework", "what", "row", "subject", "rivals", "flops", "method"),
            *("launches", "ratio", "noise", "peers", "unavailable"),
        }
        assert saved["peers"]["pygraph"]["samples_ms"] == [[2.0, 2.0], [2.0, 2.0]]
        assert Comparison.from_json(saved) == comparison

    def test_merge(self, comparison, tmp_path):
        results.write_bench(tmp_path / "bench.json", {"layout": "bhsd"}, [comparison])
        (tmp_path / "machine.json").write_text('{"gpu": "NVIDIA H200"}')
        (tmp_path / "tests-packages.xml").write_text(
            "<testsuites><testsuite>"
            '<testcase classname="a" name="good" time="1.5"/>'
            '<testcase classname="a" name="bad" time="1"><failure message="m"/></testcase>'
            '<testcase classname="a" name="out" time="0"><skipped message="why"/></testcase>'
            "</testsuite></testsuites>"
        )
        assert results.main([str(tmp_path), "--command", "gpu.sh OUT"]) == 0
        found = json.loads((tmp_path / "results.json").read_text())
        assert found["command"] == "gpu.sh OUT"
        assert found["tests"]["tests-packages"] == {
            "passed": 1,
            "failed": ["a::bad"],
            "skipped": {"a::out": "why"},
            "seconds": 2.5,
        }
        assert results.comparisons_of(found) == [comparison]

    def test_merge_of_nothing(self, tmp_path):
        assert results.merge(tmp_path, "x")["machine"] is None


class TestReport:
    def test_a_slow_row_is_marked(self, comparison):
        [(_, head, [line])] = report.tables([comparison])
        assert head[:3] == ["B,Hq,Hkv,S,D", "what", "sdpa_torch"]
        assert line[-2] == "1.040 !"
        assert line[head.index("absent")] == "-"
        assert any("slower than promised" in note for note in report.notes([comparison]))
        assert any("absent was not measured" in note for note in report.notes([comparison]))

    def test_a_fast_row_is_not_marked(self, comparison):
        fast = replace(comparison, samples=comparison.samples | {"sdpa_torch": [[1.0]]})
        [(_, _, [line])] = report.tables([fast])
        assert line[-2] == "1.000"

    def test_without_flops_the_figures_are_microseconds(self, comparison):
        [(_, head, [line])] = report.tables([replace(comparison, flops=None)])
        assert line[head.index("pygraph")] == "2000.0"

    def test_plain(self):
        text = report.plain("title", ["row", "what", "x"], [["a", "b", "1"], ["long", "b", "22"]])
        assert text.splitlines() == [
            *("title", "row   what   x", "--------------", "a     b      1", "long  b     22")
        ]

    @pytest.mark.parametrize("rich", [True, False])
    def test_printed(self, comparison, capsys, monkeypatch, rich):
        if not rich:

            def fail(*arguments):
                raise ImportError

            monkeypatch.setattr(report, "_print_rich", fail)
        report.print_tables([comparison])
        text = capsys.readouterr().out
        assert "1.040" in text
        assert "sdpa_torch" in text

    def test_page(self, comparison):
        text = page(
            {
                "machine": {"gpu": "NVIDIA H200", "torch": "2.11.0"},
                "command": "gpu.sh OUT",
                "bench": {
                    "settings": {"layout": "bhsd", "dtype": "bfloat16", "rounds": 3, "samples": 5},
                    "comparisons": [comparison.to_json()],
                },
                "tests": {"tests": {"passed": 3, "failed": [], "skipped": {}}},
            }
        )
        assert "# Measured on NVIDIA H200" in text
        assert "| torch | 2.11.0 |" in text
        assert "| 1.040 ! |" in text
        assert "| tests | 3 | 0 | 0 |" in text
