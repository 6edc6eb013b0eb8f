"""The benchmark of the executor: everything but the GPU, with a cuDNN that pretends."""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from bench.compare import Comparison
from bench.executor import __main__ as command
from bench.executor import cold, isolation, jax_tiny, memory, native, overhead, threads, ubjson
from bench.executor.figures import CannotRunError, Figure, Report, Target
from bench.executor.isolation import Outcome


def has_cuda():
    import torch

    return torch.cuda.is_available()


# ------------------------------------------------------------------------------------ figures


class TestFigures:
    @pytest.mark.parametrize(
        ("figure", "expected"),
        [
            (
                Figure("a / b", 1.204, of="6 us / 5 us", target=Target("<=", 1.35)),
                ["p", "a / b", "1.20x", "<= 1.35x", "yes", "6 us / 5 us"],
            ),
            (
                Figure("a / b", 9.0, target=Target(">=", 10)),
                ["p", "a / b", "9.00x", ">= 10.00x", "no", ""],
            ),
            (
                Figure("m", 1.0, "%", target=Target("<", 1)),
                ["p", "m", "1.00%", "< 1.00%", "no", ""],
            ),
            (Figure("n", 2304.0, "calls"), ["p", "n", "2304 calls", "-", "-", ""]),
        ],
    )
    def test_a_line(self, figure, expected):
        assert figure.line("p") == expected

    def test_a_report_survives_the_file(self):
        report = Report((Figure("a", 2.0, target=Target("<", 3)), Figure("b", 1.0)), {"x": [1]})
        assert Report.from_json(json.loads(json.dumps(report.to_json()))) == Report(
            report.figures, report.data, ()
        )


# --------------------------------------------------------------------------------- the raw loop


class TestUbjson:
    def test_every_kind_of_value(self):
        document = (
            b"{i\x01ni\xffi\x01uU\xffi\x01II\x01\x00i\x01ll\x00\x01\x00\x00i\x01LL"
            + bytes(7)
            + b"\x07"
            b"i\x01dd\x3f\x80\x00\x00i\x01DD\x3f\xf0" + bytes(6) + b"i\x01zZi\x01tTi\x01fF"
            b"i\x01sSi\x02abi\x01cCxi\x01a[i\x01[]]i\x01b[$i#i\x02\x01\x02i\x01o{$U#i\x01i\x01k\x05}"
        )
        assert ubjson.loads(document) == {
            "n": -1, "u": 255, "I": 256, "l": 65536, "L": 7, "d": 1.0, "D": 1.0, "z": None,
            "t": True, "f": False, "s": "ab", "c": "x", "a": [1, []], "b": [1, 2], "o": {"k": 5},
        }  # fmt: skip

    @pytest.mark.parametrize(
        "document", [b"", b"Si\x05abc", b"[i\x01", b"{i\x01a", b"?", b"Si\xff"]
    )
    def test_what_is_cut_or_unknown_is_an_error(self, document):
        with pytest.raises(ValueError, match="byte"):
            ubjson.loads(document)


#: A graph as the frontend writes it, with these entries in place of cuDNN's.
def graph_blob(more=b""):
    return (
        b"{i\x12cudnn_backend_dataSi\x04PLANi\x11variant_pack_uids[idi\x01i\x02]"
        b"i\x11fe_workspace_sizei\x00" + more + b"}"
    )


class TestBackendPlan:
    def test_cudnns_part_and_the_uids(self):
        assert overhead.backend_plan(graph_blob()) == overhead.BackendPlan(b"PLAN", (1, 2, 100), {})

    def test_constants_are_no_operands_of_the_caller(self):
        number = b"i\x0epass_by_values{i\x012{i\x05indexi\x03i\x05valueSi\x08FF800000}}"
        found = overhead.backend_plan(graph_blob(number))
        assert found.uids == (1, 100)
        assert found.constants == {2: struct.pack("<f", float("-inf"))}

    def test_a_constant_that_cannot_be_read_is_refused(self):
        half = b"i\x0epass_by_values{i\x012{i\x05indexi\x02i\x05valueSi\x08FF800000}}"
        with pytest.raises(ValueError, match="kind 2"):
            overhead.backend_plan(graph_blob(half))

    def test_a_graph_that_copies_before_each_run_is_refused(self):
        copies = b"i\x17workspace_modifications{i\x011[i\x00i\x00[]]}"
        with pytest.raises(ValueError, match="workspace_modifications"):
            overhead.backend_plan(graph_blob(copies))

    @pytest.mark.skipif(find_spec("cudnn") is None, reason="no cuDNN frontend")
    @pytest.mark.parametrize("causal", [False, True])
    def test_a_real_plan(self, causal):
        from sdpa_core import AttentionProblem, Band, DeviceSpec, Direction, DType, TensorSpec
        from sdpa_core.cudnn.probe import plan_or_refusal

        spec = TensorSpec((1, 8, 128, 64), (65536, 8192, 64, 1), DType.BFLOAT16)
        band = Band.causal() if causal else Band()
        problem = AttentionProblem.of(spec, spec, spec, band=band, training=True)
        plan = plan_or_refusal(problem, DeviceSpec.named("h200"), Direction.FORWARD)
        found = overhead.backend_plan(plan.blob)
        assert {"cudnnVersion", "operationGraph"} < set(json.loads(found.text))
        assert found.uids == tuple(sorted(operand.uid for operand in plan.graph.operands))


FAKE_CUDNN = r"""
#include <stdint.h>
#include <string.h>
typedef struct { int type, finalized; int64_t count, uids[8]; void *pointers[8], *workspace;
                 char text[8]; void *handle; } Descriptor;
static Descriptor made[4096]; static int used, alive, handle; static void *stream_;
long fake_sum, fake_executes; int fake_fail;
int cudnnCreate(void **out) { *out = &handle; return 0; }
int cudnnDestroy(void *h) { return h != &handle; }
int cudnnSetStream(void *h, void *stream) { stream_ = stream; return h != &handle; }
int cudnnBackendCreateDescriptor(int type, Descriptor **out) {
  *out = &made[used++]; (*out)->type = type; ++alive; return 0; }
int cudnnBackendDestroyDescriptor(Descriptor *d) { memset(d, 0, sizeof *d); --alive; return 0; }
int cudnnBackendFinalize(Descriptor *d) { d->finalized = 1; return 0; }
int fake_alive(void) { return alive; }
void *fake_stream(void) { return stream_; }
int cudnnBackendSetAttribute(Descriptor *d, int name, int type, int64_t count, const void *values) {
  if (d->finalized) return 2000;
  switch (name) {
    case 405: memcpy(d->text, values, count < 8 ? count : 8); return 0;
    case 400: memcpy(&d->handle, values, sizeof(void *)); return type != 0;
    case 1000: d->count = count; memcpy(d->uids, values, count * 8); return 0;
    case 1001: memcpy(d->pointers, values, count * 8); return 0;
    case 1003: memcpy(&d->workspace, values, sizeof(void *)); return 0;
    default: return 2000;
  }
}
int cudnnBackendExecute(void *h, Descriptor *plan, Descriptor *pack) {
  if (fake_fail || h != &handle || !plan->finalized || !pack->finalized) return 5000;
  if (plan->handle != &handle || memcmp(plan->text, "PLAN", 4)) return 5001;
  ++fake_executes; fake_sum = (long)(intptr_t)pack->workspace;
  for (int i = 0; i < pack->count; ++i)
    fake_sum += pack->uids[i] * (long)(intptr_t)pack->pointers[i];
  return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    return tmp_path_factory.mktemp("native")


@pytest.fixture(scope="module")
def library(folder):
    try:
        return native.compiled(native.RAW, folder)
    except CannotRunError as error:
        if "cudnn.h" in str(error) or "cuda_runtime" in str(error):
            pytest.skip(f"no headers: {error}")
        raise


@pytest.fixture(scope="module")
def fake(folder):
    source, path = folder / "cudnn.c", folder / "libfakecudnn.so"
    source.write_text(FAKE_CUDNN)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", path, source], check=True)
    return path


class TestRawLoop:
    @pytest.fixture
    def loop(self, library, fake):
        made = native.Loop(
            library, str(fake), b"PLAN", [(100, 7), (2, 1000), (1, 50)], workspace=9, stream=77
        )
        yield made
        made.close()

    def test_both_ways_execute_the_same(self, loop, fake):
        cudnn = ctypes.CDLL(str(fake))
        executes, total = (ctypes.c_long.in_dll(cudnn, f"fake_{x}") for x in ("executes", "sum"))
        before, alive = executes.value, cudnn.fake_alive()
        for issue in (loop.execute, loop.execute_again):
            total.value = 0
            issue(10)
            assert total.value == 9 + 1 * 50 + 2 * 1000 + 100 * 7
        assert executes.value - before == 20
        assert cudnn.fake_alive() == alive, "packs of single calls are destroyed"
        cudnn.fake_stream.restype = ctypes.c_void_p
        assert cudnn.fake_stream() == 77

    def test_a_failure_is_an_error(self, loop, fake):
        fail = ctypes.c_int.in_dll(ctypes.CDLL(str(fake)), "fake_fail")
        fail.value = 1
        try:
            with pytest.raises(RuntimeError, match="execute: cuDNN status 5000"):
                loop.execute(3)
        finally:
            fail.value = 0

    def test_a_library_that_is_not_there(self, library):
        with pytest.raises(RuntimeError, match="libnothing"):
            native.Loop(library, "/libnothing.so", b"PLAN", [(1, 1)], 0, 0)

    def test_what_does_not_compile_says_why(self, tmp_path, monkeypatch):
        monkeypatch.setattr(native, "include_folders", list)
        monkeypatch.setenv("CPATH", "")
        with pytest.raises(CannotRunError, match=r"raw_execute\.cc does not compile: .*cudnn"):
            native.compiled(native.RAW, tmp_path)


def test_overhead_is_told_as_multiples_of_the_raw_loop():
    samples = {overhead.RAW: [[0.010]], overhead.OURS: [[0.013]], overhead.PUBLIC: [[0.030]]}
    ours, public = overhead.figures_of(samples)
    assert ours.line("p")[2:] == ["1.30x", "<= 1.35x", "yes", "13.00 us / 10.00 us"]
    assert public.line("p")[2:5] == ["3.00x", "<= 2.20x", "no"]


def test_a_clock_gives_the_time_of_one_call():
    calls = []
    clock = overhead._clock(calls.append, lambda: None)
    assert 0 < clock() < 1
    assert calls == [overhead.CALLS, overhead.CALLS]


# ------------------------------------------------------------------------------------ JAX


COMPARED = {
    "kind": "wall", "framework": "jax", "what": "chain of 10", "row": "r",
    "subject": "sdpa_jax", "rivals": ("jax.nn cudnn",), "flops": None,
}  # fmt: skip


class TestJaxTiny:
    def test_the_ratio(self):
        samples = {"sdpa_jax": [[0.06]], "jax.nn cudnn": [[0.15]]}
        report = jax_tiny.report_of({"queued": Comparison(**COMPARED, samples=samples)})
        assert report.figures[0].line("p")[2:] == [
            "0.40x",
            "<= 0.50x",
            "yes",
            "60.00 us / 150.00 us",
        ]
        assert not report.faults

    def test_a_rival_that_fails_is_a_fault(self):
        found = Comparison(
            **COMPARED, samples={"sdpa_jax": [[1.0]]}, unavailable={"jax.nn cudnn": "no"}
        )
        report = jax_tiny.report_of({"queued": found})
        assert report.faults == ("queued: jax.nn cudnn: no",)
        assert not report.figures

    def test_clocks(self):
        import jax.numpy as jnp
        from bench.timing import Plan, Work

        for alone in (False, True):
            works = {"a": Work(lambda: (jnp.ones(3),))}
            clocks, _, calls = jax_tiny._clocks(works, Plan(), alone=alone)
            assert clocks["a"]() > 0
            assert calls > 1


# ------------------------------------------------------------------------------- cold processes

#: What a child prints: {name of a counter: count}, by the variables that it was started with.
CHILD = """
import json, os, sys, pathlib
framework = sys.argv[1]
store = pathlib.Path(os.environ["SDPA_CACHE_DIR"])
if framework == "broken":
    raise ValueError("no such framework")
print("noise")
print("ready", flush=True)
if not sys.stdin.readline():
    sys.exit(1)
counters = {}
if os.environ["SDPA_PLAN_STORE"] == "off" or not store.exists():
    counters["build"] = 2
if os.environ["SDPA_PLAN_STORE"] == "on":
    counters["store hit" if store.exists() else "store write"] = 2
    store.mkdir(exist_ok=True)
programs, events = os.environ.get("JAX_COMPILATION_CACHE_DIR"), {}
if programs:
    key = "same" if os.environ["SDPA_PLAN_STORE"] == "on" else str(os.getpid())
    path = pathlib.Path(programs, key)
    events["cache_hits" if path.exists() else "cache_misses"] = 1
    path.parent.mkdir(exist_ok=True)
    path.touch()
seconds = 0.5 if "build" in counters else 0.04
print(json.dumps({"seconds": seconds, "counters": counters, "events": events}))
"""
FAKE_CHILD = (sys.executable, "-c", CHILD)


class TestCold:
    def measured(self, folder, frameworks, repetitions=1):
        return cold._measured(folder, frameworks, repetitions, FAKE_CHILD)

    def test_ratios_of_the_medians(self, tmp_path):
        report = self.measured(tmp_path, ["torch", "jax"], 2)
        assert not report.faults
        lines = {figure.name: figure.line("p") for figure in report.figures}
        assert lines["torch: store off / filled"][2:] == [
            "12.50x", ">= 10.00x", "yes", "500 ms / 40 ms"
        ]  # fmt: skip
        assert lines["jax: store empty / filled"][2] == "12.50x"
        hit = lines["jax: misses of the second process's program cache, store filled"]
        assert hit[2:] == ["0 misses", "== 0 misses", "yes", "1 hits; the first process: 1 misses"]
        assert lines["jax: the same, store off"][2] == "1 misses"
        assert len(report.data["processes"]) == 2 * 2 * 3 + 4

    def test_one_framework_that_fails_leaves_the_other(self, tmp_path):
        report = self.measured(tmp_path, ["broken", "torch"])
        assert {figure.name.partition(":")[0] for figure in report.figures} == {"torch"}
        assert "broken, store off: ValueError: no such framework" in report.faults

    @pytest.mark.parametrize(
        ("mode", "counters"),
        [
            ("off", {"build": 1}),
            ("off", {"build": 2, "store hit": 1}),
            ("empty", {"build": 2, "store write": 1}),
            ("filled", {"build": 1, "store hit": 1}),
            ("filled", {}),
        ],
    )
    def test_a_process_that_did_something_else_is_a_fault(self, tmp_path, mode, counters):
        process = cold.Process("torch", mode, tmp_path)
        assert cold.plan_faults(process, {"counters": counters})

    def test_a_second_process_without_a_hit_is_a_fault(self, tmp_path):
        always_new = CHILD.replace('"same"', "str(os.getpid())")
        report = cold._measured(tmp_path, ["jax"], 1, (sys.executable, "-c", always_new))
        assert report.faults == (
            "jax: the second process found no program in the persistent cache",
        )

    def test_nothing_of_the_callers_caches_is_inherited(self, tmp_path, monkeypatch):
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/mine")
        monkeypatch.setenv("SDPA_PLAN_PACKS", "/packs")
        environment = cold.Process("jax", "filled", tmp_path).environment()
        assert "JAX_COMPILATION_CACHE_DIR" not in environment
        assert environment["SDPA_PLAN_PACKS"] == ""
        assert environment["SDPA_CACHE_DIR"] == str(tmp_path)


# ------------------------------------------------------------------------------------- memory


class TestMemory:
    def test_resident_memory_is_read(self):
        before = memory.resident_bytes()
        held = bytearray(64 << 20)
        assert memory.resident_bytes() - before > 32 << 20
        del held

    def test_growth_is_that_since_the_warm_up(self):
        done = []
        readings = iter([1000 + i for i in range(100)])
        growth = memory.grown("work", done.append, 200, 30, lambda: next(readings))
        assert done == [30] + [10] * 20
        assert growth.percent == pytest.approx(2.0)
        assert growth.figure().line("p")[2:5] == ["2.00%", "< 1.00%", "no"]

    def test_copies_are_whole_plans_with_other_keys(self):
        from sdpa_core.plan import Header

        container = real_container()
        copies = memory.under_other_keys(container, 3)
        headers = [Header.read(copy) for copy in (container, *copies)]
        assert len({header.fingerprint for header in headers}) == 4
        assert len({header._replace(fingerprint=b"") for header in headers}) == 1


def real_container():
    from sdpa_core import AttentionProblem, DeviceSpec, Direction, DType, TensorSpec
    from sdpa_core.cudnn.builder import describe
    from sdpa_core.plan import Plan

    spec = TensorSpec((1, 8, 128, 64), (65536, 8192, 64, 1), DType.BFLOAT16)
    problem = AttentionProblem.of(spec, spec, spec)
    graph = describe(problem, DeviceSpec.named("h200"), Direction.FORWARD)
    return Plan(graph, b"blob", 0, 91900, "1.32.0", 90, 132, "ab" * 32, "engine").container


# ------------------------------------------------------------------------------------ threads


class TestThreads:
    def test_every_thread_takes_every_plan_on_every_stream(self):
        jobs = [threads.jobs_of(thread) for thread in range(threads.THREADS)]
        assert sum(map(len, jobs)) >= 2000
        for found in jobs:
            pairs = {(job.plan, job.stream) for job in found}
            assert len(pairs) == len(threads.ROWS) * threads.STREAMS
            assert {job.inputs for job in found} == set(range(threads.INPUTS))
        assert jobs[0] != jobs[1]
        assert jobs[0] == threads.jobs_of(0)

    def test_all_run_at_once_and_errors_are_told(self):
        waiting = threading.Barrier(4, timeout=20)

        def work():
            waiting.wait()  # passes only if all four are here

        def fails():
            work()
            raise ValueError("no")

        assert threads.together([work, fails, work, work]) == ["thread 1: ValueError: no"]

    def test_the_same_numbers_of_other_signs_are_not_the_same(self):
        import torch

        zero = torch.zeros(3)
        assert threads._same_bits(zero, zero.clone())
        assert not threads._same_bits(zero, -zero)
        nan = torch.full((3,), float("nan"), dtype=torch.bfloat16)
        assert threads._same_bits(nan, nan.clone())


# ------------------------------------------------------------------------------- command line

PART = """
import json, os, signal, sys, time
part, path = sys.argv[2:4]
if part == "crash": os.kill(os.getpid(), signal.SIGSEGV)
if part == "hang": time.sleep(60)
if part == "raise": raise ValueError("what happened")
if part == "cannot": open(path, "w").write('{"reason": "no GPU"}'); sys.exit(1)
report = {"figures": [], "data": {"options": sys.argv[4:], "store": os.environ["SDPA_PLAN_STORE"]}}
open(path, "w").write(json.dumps(report | {"faults": []}))
"""


class TestIsolation:
    def apart(self, part, *options, limit=30.0):
        return isolation.run_apart(part, options, (sys.executable, "-c", PART), limit)

    def test_a_part_that_ends_well(self):
        outcome = self.apart("fine", "--native", "x")
        assert outcome.ok
        assert outcome.report.data == {"options": ["--native", "x"], "store": "off"}

    @pytest.mark.parametrize(
        ("part", "reason"),
        [
            ("crash", "it was ended by SIGSEGV: no output"),
            ("raise", "exit status 1: ValueError: what happened"),
            ("cannot", "no GPU"),
        ],
    )
    def test_a_part_that_does_not(self, part, reason):
        outcome = self.apart(part)
        assert (outcome.ok, outcome.reason) == (False, reason)
        assert outcome.to_json()["reason"] == reason

    def test_a_part_that_hangs_is_ended(self):
        assert self.apart("hang", limit=0.3).reason.startswith("it took longer than 0 s")


class TestCommandLine:
    @pytest.fixture
    def played(self, monkeypatch):
        """Parts that end as a test says."""
        outcomes = {
            "machine": Report(data={"gpu": "NVIDIA H200"}),
            "overhead": Report((Figure("a / b", 1.5, target=Target("<=", 1.35)),)),
            "memory": Report((Figure("growth", 0.1, "%"),)),
        }
        monkeypatch.setattr(
            command, "run_apart", lambda part, _: Outcome(part, 1.0, outcomes.get(part), "why")
        )
        return outcomes

    def run(self, tmp_path, *parts):
        out = tmp_path / "executor.json"
        status = command.main(["--out", str(out), "--parts", *parts])
        return status, json.loads(out.read_text())

    def test_a_missed_target_is_told_and_no_failure(self, played, tmp_path, capsys):
        status, saved = self.run(tmp_path, "overhead", "memory")
        assert status == 0
        assert saved["machine"] == {"gpu": "NVIDIA H200"}
        assert set(saved["parts"]) == {"overhead", "memory"}
        assert saved["command"].endswith("--parts overhead memory")
        printed = capsys.readouterr().out
        assert printed.index("1.50x") < printed.index("0.10%"), "in the order that was asked for"

    def test_a_part_that_cannot_run_leaves_the_others(self, played, tmp_path, capsys):
        status, saved = self.run(tmp_path, "threads", "overhead")
        assert status == 1
        assert saved["parts"]["threads"]["reason"] == "why"
        printed = capsys.readouterr().out
        assert "1.50x" in printed
        assert "part 'threads' did not run: why" in printed

    def test_a_fault_is_a_failure(self, played, tmp_path, capsys):
        played["memory"] = Report(faults=("it leaks",))
        assert self.run(tmp_path, "memory")[0] == 1
        assert "wrong: memory: it leaks" in capsys.readouterr().out

    @pytest.mark.skipif("has_cuda()", reason="there is a GPU")
    @pytest.mark.parametrize("part", ["overhead", "jax_tiny", "memory", "threads"])
    def test_every_part_says_what_is_missing(self, tmp_path, part):
        result = tmp_path / "result.json"
        assert command.main(["--apart", part, str(result)]) == 1
        reason = json.loads(result.read_text())["reason"]
        assert "no CUDA device" in reason or "not installed" in reason


def test_the_page_has_the_command():
    page = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "executor.md"
    text = page.read_text(encoding="utf-8")
    assert "python -m bench.executor --out" in text
    for part in command.PARTS:
        assert f"`{part}`" in text
