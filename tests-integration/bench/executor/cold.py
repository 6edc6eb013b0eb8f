"""From a cold process to its first result: without the store, with an empty one, with a full one.

Processes import their framework and initialize the device side by side, which is not timed; then
each has its turn alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .figures import CannotRunError, Figure, Report, Target

REPETITIONS = 3
FRAMEWORKS = ("torch", "jax")

#: How much sooner the first result is there if the store has the plans.
TARGET = Target(">=", 10.0)

#: In this order: the second fills the store for the third.
MODES = ("off", "empty", "filled")

#: What is counted of plans, at least a forward and a backward one.
_PLANS = 2

_CHILD = (sys.executable, "-m", "bench.executor.child")


@dataclass(frozen=True)
class Process:
    """A process to start.

    Attributes:
        framework: ``torch`` or ``jax``.
        mode: of the store.
        store: its folder.
        programs: folder of JAX's persistent cache, if it has one.
    """

    framework: str
    mode: str
    store: Path
    programs: Path | None = None

    def environment(self) -> dict[str, str]:
        own = {
            "SDPA_PLAN_STORE": "off" if self.mode == "off" else "on",
            "SDPA_CACHE_DIR": str(self.store),
            "SDPA_PLAN_PACKS": "",
            "SDPA_LOG": "",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        if self.programs is not None:
            own |= {
                "JAX_COMPILATION_CACHE_DIR": str(self.programs),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE"))
        }
        return inherited | own


@dataclass
class Started:
    """A process that waits for its turn, or has failed."""

    running: subprocess.Popen[str]
    log: Path
    failure: str = field(default="", init=False)

    def until_ready(self) -> None:
        assert self.running.stdout is not None
        for line in self.running.stdout:
            if line.strip() == "ready":
                return
        self._fail()

    def measure(self) -> dict[str, Any]:
        """Let it go; what it measured.

        Raises:
            CannotRunError: it ended without a measurement.
        """
        if self.failure:
            raise CannotRunError(self.failure)
        output, _ = self.running.communicate("go\n")
        found = [line for line in output.splitlines() if line.startswith("{")]
        if self.running.returncode or not found:
            self._fail()
            raise CannotRunError(self.failure)
        measured: dict[str, Any] = json.loads(found[-1])
        return measured

    def _fail(self) -> None:
        status = self.running.wait()
        lines = self.log.read_text(errors="replace").strip().splitlines()
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        self.failure = (errors or lines or [f"exit status {status}"])[-1]


@contextmanager
def started(
    processes: Sequence[Process], logs: Path, child: Sequence[str] = _CHILD
) -> Iterator[list[Started]]:
    """All processes, side by side, up to the point where they wait; ended with the block."""
    with ExitStack() as stack:
        found = []
        for number, process in enumerate(processes):
            log = logs / f"{number}.log"
            file = stack.enter_context(log.open("w"))
            running = subprocess.Popen(
                [*child, process.framework],
                env=process.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
            stack.callback(_ended, running)
            found.append(Started(running, log))
        for process_ in found:
            process_.until_ready()
        yield found


def _ended(running: subprocess.Popen[str]) -> None:
    """End a process if it still runs, and close its pipes."""
    if running.poll() is None:
        running.kill()
    running.communicate()


def plan_faults(process: Process, measured: Mapping[str, Any]) -> list[str]:
    """Where the process did not do what its mode says."""
    counters = measured["counters"]
    built, found, written = (
        counters.get(kind, 0) for kind in ("build", "store hit", "store write")
    )
    right = {
        "off": built >= _PLANS and found == written == 0,
        "empty": built >= _PLANS and found == 0 and written == built,
        "filled": found >= _PLANS and built == written == 0,
    }
    if right[process.mode]:
        return []
    did = f"{built} plans built, {found} read from the store, {written} written"
    return [f"{process.framework}, store {process.mode}: {did}"]


def processes_of(folder: Path, frameworks: Sequence[str], repetitions: int) -> list[Process]:
    """Every repetition has a store of its own for each framework."""
    return [
        Process(framework, mode, folder / f"{framework}-{number}")
        for number in range(repetitions)
        for framework in frameworks
        for mode in MODES
    ]


def cached_processes(folder: Path, store: Path) -> list[Process]:
    """Two processes with a full store and one cache of programs, and two without a store."""
    return [
        Process("jax", mode, store, folder / f"programs-{mode}")
        for mode in ("filled", "off")
        for _ in range(2)
    ]


def figures_of(seconds: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Figure]:
    """How much sooner with the store, by framework; medians."""
    figures = []
    for framework, modes in seconds.items():
        filled = median(modes["filled"])
        for mode in ("off", "empty"):
            without = median(modes[mode])
            figures.append(
                Figure(
                    f"{framework}: store {mode} / filled",
                    without / filled,
                    of=f"{without * 1e3:.0f} ms / {filled * 1e3:.0f} ms",
                    target=TARGET if mode == "off" else None,
                )
            )
    return figures


def cache_figures(measured: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Whether the second process of each pair found its program in JAX's cache."""
    hits = [found["events"].get("cache_hits", 0) for found in measured]
    misses = [found["events"].get("cache_misses", 0) for found in measured]
    cold, warm = measured[0]["seconds"], measured[1]["seconds"]
    return [
        Figure(
            "jax: misses of the second process's program cache, store filled",
            float(misses[1]),
            "misses",
            f"{hits[1]} hits; the first process: {misses[0]} misses",
            Target("==", 0.0),
        ),
        Figure(
            "jax: the same, store off",
            float(misses[3]),
            "misses",
            f"{hits[3]} hits; the first process: {misses[2]} misses",
        ),
        Figure(
            "jax: store filled, first / second process of one program cache",
            cold / warm,
            of=f"{cold * 1e3:.0f} ms / {warm * 1e3:.0f} ms",
        ),
    ]


def run(frameworks: Sequence[str] = FRAMEWORKS, repetitions: int = REPETITIONS) -> Report:
    """Measure all frameworks that run; one that does not is a fault."""
    with tempfile.TemporaryDirectory(prefix="sdpa-bench-cold-") as name:
        return _measured(Path(name), frameworks, repetitions)


def _measured(
    folder: Path,
    frameworks: Sequence[str],
    repetitions: int,
    child: Sequence[str] = _CHILD,
) -> Report:
    processes = processes_of(folder, frameworks, repetitions)
    cached = cached_processes(folder, folder / "jax-0") if "jax" in frameworks else []
    with started([*processes, *cached], folder, child) as running:
        pairs = list(zip([*processes, *cached], running, strict=True))
        done: list[tuple[Process, dict[str, Any]]] = []
        faults: list[str] = []
        for process, waiting in pairs:
            try:
                measured = waiting.measure()
            except CannotRunError as error:
                faults.append(f"{process.framework}, store {process.mode}: {error}")
                continue
            done.append((process, measured))
            faults += plan_faults(process, measured)
    seconds: dict[str, dict[str, list[float]]] = {}
    for process, measured in done:
        if process.programs is None:
            modes = seconds.setdefault(process.framework, {})
            modes.setdefault(process.mode, []).append(measured["seconds"])
    whole = {name: modes for name, modes in seconds.items() if set(modes) == set(MODES)}
    figures = figures_of(whole)
    of_programs = [measured for process, measured in done if process.programs is not None]
    if cached and len(of_programs) == len(cached):
        figures += cache_figures(of_programs)
        if not of_programs[1]["events"].get("cache_hits"):
            faults.append("jax: the second process found no program in the persistent cache")
    kept = [
        {"framework": p.framework, "store": p.mode, "programs": p.programs is not None, **measured}
        for p, measured in done
    ]
    return Report(tuple(figures), {"processes": kept}, tuple(dict.fromkeys(faults)))
