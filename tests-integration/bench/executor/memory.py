"""Resident memory of a process that executes and loads for a long time."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..rows import HOST_ROW
from .figures import Figure, Report, Target
from .launch import launch_of, require_gpu

EXECUTES = 200_000
LOADS = 2_000
PLANS = 20

_WARM_UP = 20_000
_BATCH = 500  # calls between two synchronizations: a stream's queue takes 1024
_READINGS = 20

#: Of the resident memory after warm-up.
TARGET = Target("<", 1.0)

#: Where a container keeps the key of its problem; not covered by the hash (``sdpa_core.plan``).
_KEY = slice(56, 88)


def resident_bytes() -> int:
    """VmRSS of this process, after what Python can free is freed."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Growth:
    """Readings of the resident memory: after warm-up, and after each share of the work."""

    what: str
    readings: Sequence[int]

    @property
    def percent(self) -> float:
        """The last reading's difference to the first one."""
        return (self.readings[-1] / self.readings[0] - 1.0) * 100.0

    def figure(self) -> Figure:
        first, last = (reading / 2**20 for reading in (self.readings[0], self.readings[-1]))
        of = f"{first:.1f} MiB, then {last:.1f} MiB"
        return Figure(f"memory after {self.what}", self.percent, "%", of, TARGET)


def grown(
    what: str,
    work: Callable[[int], object],
    total: int,
    warm_up: int,
    read: Callable[[], int] = resident_bytes,
) -> Growth:
    """Do ``work(count)`` for ``total`` in equal shares, after ``warm_up``; read in between."""
    work(warm_up)
    readings = [read()]
    for _ in range(_READINGS):
        work(total // _READINGS)
        readings.append(read())
    return Growth(what, readings)


def under_other_keys(container: bytes, count: int) -> list[bytes]:
    """Copies of a plan that the executor takes for plans of other problems."""
    keys = (number.to_bytes(32, "little") for number in range(1, count + 1))
    return [container[: _KEY.start] + key + container[_KEY.stop :] for key in keys]


def run() -> Report:
    require_gpu()
    import torch

    import sdpa_ffi

    launch = launch_of(HOST_ROW, training=True)
    container = launch.plan.container
    call = launch.on(torch.cuda.current_stream().cuda_stream)

    def execute(count: int) -> None:
        for number in range(count):
            call()
            if number % _BATCH == 0:
                torch.cuda.synchronize()
        torch.cuda.synchronize()

    def load(count: int) -> None:
        for _ in range(count):
            sdpa_ffi.load(container, device=0)  # the object is released at once

    executed = grown(f"{EXECUTES:,} executes", execute, EXECUTES, _WARM_UP)
    loaded = grown(f"{LOADS:,} loads and releases", load, LOADS, LOADS // 10)
    before = sdpa_ffi.counters()["loads"]
    cost, device_cost = _cost_of_plans(under_other_keys(container, PLANS))
    counted = sdpa_ffi.counters()["loads"] - before
    faults = [] if counted == PLANS else [f"{counted} plans were loaded, expected are {PLANS}"]
    figures = (
        executed.figure(),
        loaded.figure(),
        Figure("memory of one more plan", cost / 2**20, "MiB", f"{PLANS} copies, other keys"),
        Figure("device memory of one more plan", device_cost / 2**20, "MiB"),
    )
    data = {
        "executes": list(executed.readings),
        "loads": list(loaded.readings),
        "plan_bytes": len(container),
    }
    return Report(figures, data, faults)


def _cost_of_plans(containers: Sequence[bytes]) -> tuple[float, float]:
    """Bytes of the host and of the device for one plan, which is never unloaded."""
    import torch

    import sdpa_ffi

    def used() -> int:
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    host, device = resident_bytes(), used()
    for container in containers:
        sdpa_ffi.load(container, device=0)
    count = len(containers)
    return (resident_bytes() - host) / count, (used() - device) / count
