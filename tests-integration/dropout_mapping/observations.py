"""Which decisions are seen: in the dump, or read back from one-hot values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .execution import Memory, Runner
from .setups import Setup

UNWRITTEN = -7.0

#: Of each sequence that is there, int8 [heads, Sq, Skv]: 1 kept, 0 dropped, -1 not seen.
Observed = list[Tensor]


def nothing_seen(setup: Setup, device: torch.device) -> Observed:
    return [torch.full((setup.heads, *n), -1, dtype=torch.int8, device=device) for n in setup.real]


def hide(setup: Setup, observed: Observed) -> Observed:
    return [torch.where(setup.visible(b, seen.device), seen, -1) for b, seen in enumerate(observed)]


def decisions(values: Tensor) -> Tensor:
    return torch.where(values.isnan(), -1, (values > 0).to(torch.int8)).to(torch.int8)


def from_dump(runner: Runner, setup: Setup, direction: str, plan: int | None) -> Observed:
    memory = Memory(setup, runner.device)
    if direction == "backward":
        forward(runner, setup, memory)
    memory["dump"].fill_(UNWRITTEN)
    call = runner.call(setup, direction, dump=True)
    runner.execute(call, memory, call.build(plan))
    observed = []
    for b, (sq, skv) in enumerate(setup.real):
        part = memory["dump"][b, :, :sq, :skv]
        observed.append(torch.where(part == UNWRITTEN, -1, decisions(part)))
    return hide(setup, observed)


def forward(runner: Runner, setup: Setup, memory: Memory) -> None:
    """Output and statistics for a backward pass."""
    call = runner.call(setup, "forward", dump=False)
    runner.execute(call, memory, call.build())


def from_output(runner: Runner, setup: Setup, direction: str, plan: int | None) -> Observed:
    """A column of the output shows one key: it is positive where the key was kept."""
    memory = Memory(setup, runner.device)
    call = runner.call(setup, direction, dump=False)
    plan = call.build(plan)
    observed = nothing_seen(setup, runner.device)
    for first in range(0, max(skv for _, skv in setup.real), setup.d):
        memory.one_hot("v", first, slice(None))
        runner.execute(call, memory, plan)
        for b, seen in enumerate(observed):
            part = seen[:, :, first : first + setup.d]
            part.copy_(decisions(memory.sequence("o", b)[:, :, : part.shape[2]]))
    return hide(setup, observed)


def from_gradient(runner: Runner, setup: Setup, direction: str, plan: int | None) -> Observed:
    """A column of dV shows one query of one head of each group."""
    memory = Memory(setup, runner.device)
    forward(runner, setup, memory)
    call = runner.call(setup, direction, dump=False)
    plan = call.build(plan)
    observed = nothing_seen(setup, runner.device)
    for member in range(setup.group):
        heads = slice(member, None, setup.group)
        for first in range(0, max(sq for sq, _ in setup.real), setup.d):
            memory.one_hot("dO", first, heads)
            runner.execute(call, memory, plan)
            for b, seen in enumerate(observed):
                part = seen[heads, first : first + setup.d]
                columns = memory.sequence("dV", b)[:, :, : part.shape[1]]
                part.copy_(decisions(columns.transpose(1, 2)))
    return hide(setup, observed)


Way = Callable[[Runner, Setup, str, int | None], Observed]
WAYS: dict[str, tuple[Way, str, bool]] = {
    "forward dump": (from_dump, "forward", True),
    "output": (from_output, "forward", False),
    "backward dump": (from_dump, "backward", True),
    "gradient": (from_gradient, "backward", False),
}
