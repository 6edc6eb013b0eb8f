"""Many threads, each with streams of its own, on the same plans: as if one after another."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..rows import Row
from .figures import Figure, Report, Target
from .launch import empty_results, empty_workspace, in_order, plan_of, require_gpu

THREADS = 16
STREAMS = 4
ROWS = (
    Row(1, 8, 8, 128, 64, causal=False),
    Row(1, 8, 8, 320, 64, causal=True),
    Row(2, 8, 2, 256, 128, causal=True),
    Row(3, 4, 4, 192, 128, causal=False),
    Row(1, 16, 4, 512, 64, causal=True),
    Row(2, 4, 4, 384, 96, causal=False),
)
#: Sets of inputs for each plan, every one with its own scale.
INPUTS = 3
#: Times that a thread takes every plan on each of its streams.
REPEATS = 6


@dataclass(frozen=True)
class Job:
    """One execution: numbers of a plan, its inputs, and the thread's stream."""

    plan: int
    inputs: int
    stream: int


def jobs_of(thread: int) -> list[Job]:
    """What a thread does, in an order of its own, which is the same in every run."""
    shuffle = random.Random(thread)
    numbers = [
        (plan, stream)
        for _ in range(REPEATS)
        for plan in range(len(ROWS))
        for stream in range(STREAMS)
    ]
    shuffle.shuffle(numbers)
    return [Job(plan, shuffle.randrange(INPUTS), stream) for plan, stream in numbers]


def together(works: Sequence[Callable[[], None]]) -> list[str]:
    """Run every work in a thread of its own, all starting at once; what they raised, in words."""
    start = threading.Barrier(len(works))
    errors: list[str] = []

    def run(number: int, work: Callable[[], None]) -> None:
        start.wait()
        try:
            work()
        except Exception as error:  # noqa: BLE001 (whatever it is, it is reported)
            errors.append(f"thread {number}: {type(error).__name__}: {error}")

    running = [
        threading.Thread(target=run, args=(number, work)) for number, work in enumerate(works)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return errors


@dataclass(frozen=True)
class _Given:
    """One set of inputs of a plan."""

    tensors: dict[str, Any]
    scale: float


class _Bench:
    """The plans, their inputs, and memory for every result, all made before the threads start."""

    def __init__(self) -> None:
        import torch

        self.plans = [plan_of(row, training=True) for row in ROWS]
        self.given = [[_given(row, number) for number in range(INPUTS)] for row in ROWS]
        self.jobs = [jobs_of(thread) for thread in range(THREADS)]
        self.results = [[empty_results(self.plans[job.plan]) for job in jobs] for jobs in self.jobs]
        for results in self.results:
            for made in results:
                for tensor in made.values():
                    tensor.fill_(float("nan"))
        largest = max(self.plans, key=lambda plan: plan.workspace_bytes)
        self.workspaces = [
            [empty_workspace(largest) for _ in range(STREAMS)] for _ in range(THREADS)
        ]
        # Of both priorities: torch hands out 32 streams of each, then the same ones again.
        self.streams = [
            [torch.cuda.Stream(priority=-(number % 2)) for number in range(STREAMS)]
            for _ in range(THREADS)
        ]
        torch.cuda.synchronize()

    def work(self, thread: int) -> None:
        """A thread's jobs; the plans are loaded by whoever comes first."""
        import sdpa_ffi

        loaded = [sdpa_ffi.load(plan.container, device=0) for plan in self.plans]
        for job, results in zip(self.jobs[thread], self.results[thread], strict=True):
            given = self.given[job.plan][job.inputs]
            operands = in_order(self.plans[job.plan], given.tensors | results)
            workspace = self.workspaces[thread][job.stream]
            stream = self.streams[thread][job.stream].cuda_stream
            loaded[job.plan].execute(operands, (given.scale,), workspace, stream)

    def serial(self) -> list[list[dict[str, Any]]]:
        """The result of every plan and inputs, one execution after another."""
        import torch

        import sdpa_ffi

        stream = torch.cuda.current_stream().cuda_stream
        found = []
        for plan, sets in zip(self.plans, self.given, strict=True):
            execute = sdpa_ffi.load(plan.container, device=0).execute
            workspace = empty_workspace(plan)
            made = []
            for given in sets:
                results = empty_results(plan)
                operands = in_order(plan, given.tensors | results)
                execute(operands, (given.scale,), workspace, stream)
                torch.cuda.synchronize()
                made.append(results)
            found.append(made)
        return found

    def different(self, serial: list[list[dict[str, Any]]]) -> list[str]:
        """Executions whose results are not, bit for bit, the serial ones."""
        return [
            f"thread {thread}, {ROWS[job.plan].name}, stream {job.stream}"
            for thread, jobs in enumerate(self.jobs)
            for job, results in zip(jobs, self.results[thread], strict=True)
            if not all(
                _same_bits(tensor, serial[job.plan][job.inputs][role])
                for role, tensor in results.items()
            )
        ]


def _given(row: Row, number: int) -> _Given:
    import torch

    heads = {"query": row.heads, "key": row.heads_kv, "value": row.heads_kv}
    generator = torch.Generator("cuda").manual_seed(number)
    tensors = {
        role: torch.randn(
            (row.batch, count, row.tokens, row.head_dim),
            generator=generator,
            dtype=torch.bfloat16,
            device="cuda",
        )
        for role, count in heads.items()
    }
    return _Given(tensors, row.scale * (1.0 + 0.25 * number))


def _same_bits(a: Any, b: Any) -> bool:
    import torch

    bits = torch.int16 if a.element_size() == 2 else torch.int32
    return bool(torch.equal(a.view(bits), b.view(bits)))


def run() -> Report:
    require_gpu()
    import torch

    bench = _Bench()
    errors = together([lambda thread=thread: bench.work(thread) for thread in range(THREADS)])
    torch.cuda.synchronize()
    serial = bench.serial()
    apart = [
        f"{ROWS[plan].name}: inputs {number} and 0 give one result"
        for plan, sets in enumerate(serial)
        for number in range(1, INPUTS)
        if _same_bits(sets[0]["output"], sets[number]["output"])
    ]
    different = bench.different(serial)
    calls = sum(map(len, bench.jobs))
    figure = Figure(
        "results equal to serial ones",
        float(calls - len(different)),
        "calls",
        f"{THREADS} threads x {STREAMS} streams x {len(ROWS)} plans",
        Target("==", float(calls)),
    )
    data = {"calls": calls, "different": different[:50], "plans": [row.name for row in ROWS]}
    faults = [*errors, *apart]
    if different:
        faults.append(f"{len(different)} results differ: {'; '.join(different[:3])}")
    return Report((figure,), data, faults)
