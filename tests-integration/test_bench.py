"""The benchmark's arithmetic and files, with peers that only pretend to compute."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec

import pytest
from bench import report, results, suites
from bench.__main__ import main
from bench.compare import TOLERANCE, Comparison, compare
from bench.peers.jax_nn import JaxNn
from bench.peers.native import NativeExecutor
from bench.peers.ours import OursInJax, OursInTorch
from bench.peers.pygraph import Pygraph
from bench.peers.torch_sdpa import TorchSdpa
from bench.render import page
from bench.rows import HOST_ROW, ROWS, Row, chosen
from bench.timing import Plan, Work, host_clock, measure, median_of_medians, schedule, spread

TINY = Row(1, 2, 1, 16, 8, causal=True)


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


class Fake:
    """A peer whose results are numbers."""

    def __init__(self, name, value=1.0, *, reason=None, error=None):
        self.name, self.value, self.reason, self.error = name, value, reason, error

    def unavailable(self):
        return self.reason

    def scope(self):
        return nullcontext()

    def forward(self, inputs):
        if self.error:
            raise self.error
        return lambda: (self.value,)

    backward = forward


class Inputs:
    row = TINY


def compared(*peers, times):
    """A comparison in which each peer takes as long as ``times`` says."""

    def clocks(works, plan):
        return {name: lambda name=name: times[name] for name in works}, "a made-up clock", 7

    return compare(
        peers,
        Inputs(),
        lambda peer, inputs: peer.forward(inputs),
        clocks,
        lambda a, b: abs(a - b) / abs(b),
        Plan(rounds=2, samples=2),
        kind="device",
        framework="torch",
        what="forward",
        rivals=("torch CUDNN", "pygraph"),
        flops=TINY.flops("forward"),
    )


TIMES = {"sdpa_torch": 1.04, "torch CUDNN": 1.0, "pygraph": 2.0, "torch FLASH": 0.5}


@pytest.fixture
def comparison():
    peers = [Fake(name) for name in TIMES]
    return compared(*peers, Fake("absent", reason="not installed"), times=TIMES)


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


def has_cuda():
    import torch

    return torch.cuda.is_available()


class TestPeers:
    @pytest.mark.parametrize(
        "peer",
        [
            OursInTorch(),
            OursInJax(),
            NativeExecutor(),
            TorchSdpa("CUDNN_ATTENTION"),
            TorchSdpa("FLASH_ATTENTION"),
            Pygraph(),
            JaxNn(),
        ],
        ids=lambda peer: peer.name,
    )
    @pytest.mark.skipif("has_cuda()", reason="there is a GPU")
    def test_without_a_gpu_every_peer_says_why(self, peer):
        reason = peer.unavailable()
        assert "no CUDA device" in reason or "not installed" in reason

    @pytest.mark.parametrize("layout", ["bhsd", "bshd"])
    def test_torch_peers_compute_attention(self, layout):
        """The same code as on a GPU, with the kernel that a CPU has."""
        import torch
        from bench.inputs import torch_difference, torch_inputs

        class Reference(OursInTorch):
            def attend(self, inputs, query, key, value):
                import sdpa_torch

                return sdpa_torch.scaled_dot_product_attention(
                    query, key, value, is_causal=True, enable_gqa=True, backend="reference"
                )

        inputs = torch_inputs(TINY, layout, device="cpu")
        assert inputs.query.is_contiguous() == (layout == "bhsd")
        ours, theirs = Reference(), TorchSdpa("MATH")
        for kind in ("forward", "backward", "training_step"):
            with theirs.scope():
                wanted = getattr(theirs, kind)(inputs)()
            found = getattr(ours, kind)(inputs)()
            assert len(found) == len(wanted) == (1 if kind == "forward" else 3)
            for a, b in zip(found, wanted, strict=True):
                assert isinstance(a, torch.Tensor)
                assert torch_difference(a, b) < TOLERANCE

    def test_jax_peers_compute_attention(self):
        from bench.inputs import jax_difference, jax_inputs

        class Ours(OursInJax):
            def attend(self, query, key, value, *, causal):
                import sdpa_jax

                return sdpa_jax.dot_product_attention(query, key, value, is_causal=causal)

        class Theirs(JaxNn):
            def attend(self, query, key, value, *, causal):
                import jax

                return jax.nn.dot_product_attention(query, key, value, is_causal=causal)

        inputs = jax_inputs(TINY)
        calls = {
            "forward": lambda peer: peer.forward(inputs),
            "backward": lambda peer: peer.backward(inputs),
            "chain": lambda peer: peer.chain(jax_inputs(HOST_ROW), 3),
        }
        for kind, call in calls.items():
            found, wanted = call(Ours())(), call(Theirs())()
            assert len(found) == (3 if kind == "backward" else 1)
            for a, b in zip(found, wanted, strict=True):
                assert jax_difference(a, b) < TOLERANCE

    def test_jax_clock(self):
        import jax.numpy as jnp

        clocks, method, launches = suites.jax_clocks({"a": Work(lambda: (jnp.ones(3),))}, Plan())
        assert clocks["a"]() > 0
        assert "wall clock" in method
        assert launches > 1

    @pytest.mark.skipif(find_spec("cudnn") is None, reason="no cuDNN frontend")
    def test_the_frontends_graphs_are_built(self):
        """On a description of a GPU: what the frontend's user writes is valid."""
        import cudnn
        import torch
        from bench.inputs import torch_inputs
        from bench.peers.pygraph import backward_graph, forward_graph

        from sdpa_core import DeviceSpec
        from sdpa_core.cudnn import deviceless

        deviceless.prepare()
        where = {
            "sm_version": 90,
            "device_property": cudnn.create_device_properties(DeviceSpec.named("h200").properties),
        }
        row = Row(2, 4, 2, 256, 64, causal=True)
        inputs = torch_inputs(row, device="meta")
        graph, nodes = forward_graph(cudnn, inputs, with_stats=True, **where)
        assert set(nodes) == {"query", "key", "value", "output", "stats"}
        assert graph.get_workspace_size() >= 0
        stats = torch.empty(2, 4, 256, 1, device="meta")
        tensors = inputs.by_role() | {"output": inputs.query, "stats": stats}
        graph, nodes = backward_graph(cudnn, inputs, tensors, **where)
        assert {"grad_query", "grad_key", "grad_value"} < set(nodes)


@pytest.mark.skipif("has_cuda()", reason="there is a GPU")
def test_the_command_line_without_a_gpu(tmp_path, capsys):
    """It says what is missing, and fails."""
    out = tmp_path / "bench.json"
    assert main(["--out", str(out), "--suites", "host", "--rounds", "1"]) == 1
    assert "suite 'host' did not run" in capsys.readouterr().out
