"""Ten attentions so small that launching them is what takes time, in one compiled program."""

from __future__ import annotations

from collections.abc import Mapping

from .. import inputs as data
from ..compare import Comparison, compare
from ..peers.base import missing, no_cuda_in_jax
from ..peers.jax_nn import JaxNn
from ..peers.ours import OursInJax
from ..rows import HOST_ROW
from ..suites import CHAIN
from ..timing import Clock, Plan, Work, wall_clock
from .figures import CannotRunError, Figure, Report, Target, microseconds

PLAN = Plan(rounds=5, samples=10)

#: Our time over JAX's own.
TARGET = Target("<=", 0.5)

#: Calls of one sample, when the next call need not wait and when it does.
_QUEUED, _ALONE = 100, 20


def _clocks(
    works: Mapping[str, Work], plan: Plan, *, alone: bool
) -> tuple[dict[str, Clock], str, int]:
    import jax

    wait = jax.block_until_ready
    for work in works.values():
        wait(work(3))
    if not alone:
        clocks = {name: wall_clock(work, wait, _QUEUED) for name, work in works.items()}
        return clocks, "the last of many calls waited for", _QUEUED
    waiting = {name: Work(lambda call=work.call: wait(call())) for name, work in works.items()}
    clocks = {name: wall_clock(work, wait, _ALONE) for name, work in waiting.items()}
    return clocks, "each call waited for", _ALONE


def _compared(*, alone: bool) -> Comparison:
    return compare(
        (OursInJax(), JaxNn()),
        data.jax_inputs(HOST_ROW),
        lambda peer, inputs: peer.chain(inputs, CHAIN),  # type: ignore[attr-defined]
        lambda works, plan: _clocks(works, plan, alone=alone),
        data.jax_difference,
        PLAN,
        kind="wall",
        framework="jax",
        what=f"chain of {CHAIN}",
        row=HOST_ROW.name,
        rivals=("jax.nn cudnn",),
        flops=None,
    )


def report_of(comparisons: Mapping[str, Comparison]) -> Report:
    """Figures and faults, by how the calls were made."""
    figures, faults = [], []
    for how, found in comparisons.items():
        faults += found.faults
        if found.ratio is None:
            faults += [f"{how}: {name}: {why}" for name, why in found.unavailable.items()]
            continue
        times = [found.milliseconds(name) for name in (found.subject, *found.rivals)]
        text = " / ".join(microseconds(time) for time in times if time is not None)
        name = f"sdpa_jax / jax.nn cudnn, {how}"
        figures.append(Figure(name, found.ratio, of=text, target=TARGET))
    saved = {how: found.to_json() for how, found in comparisons.items()}
    return Report(tuple(figures), saved, tuple(dict.fromkeys(faults)))


def run() -> Report:
    needed = missing("jax", "sdpa_jax", "sdpa_ffi", "cudnn")
    if reason := needed or no_cuda_in_jax():
        raise CannotRunError(reason)
    return report_of({"queued": _compared(alone=False), "alone": _compared(alone=True)})
