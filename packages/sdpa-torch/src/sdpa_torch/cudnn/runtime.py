"""Who plans and launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from sdpa_core import AttentionProblem, DeviceSpec, Direction, Plan
from sdpa_core.cudnn.probe import plan_or_refusal, plan_that_loads
from sdpa_core.errors import SdpaEnvironmentError

#: ``execute(operands in ascending uid, host scalars, workspace, stream)``.
Execute = Callable[[tuple[Tensor, ...], tuple[float, ...], Tensor | None, int], None]


class Runtime(Protocol):
    """Who plans and launches: cuDNN and the native executor, or their stand-in in tests."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan | str:
        """A plan, or cuDNN's reason against it."""
        ...

    def load(self, plan: Plan, where: torch.device) -> Execute: ...

    def stream(self, where: torch.device) -> int: ...


class NativeRuntime:
    """cuDNN through its frontend, launched by sdpa-ffi."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan | str:
        if spec.ordinal is None:
            return plan_or_refusal(problem, spec, direction)
        # Loaded here already, where a plan of the store that the executor refuses can be replaced;
        # the executor keeps what it has loaded.
        where = torch.device("cuda", spec.ordinal)
        return plan_that_loads(problem, spec, direction, lambda plan: self.load(plan, where))

    def load(self, plan: Plan, where: torch.device) -> Execute:
        execute: Execute = executor().load(plan.container, device=where.index).execute
        return execute

    def stream(self, where: torch.device) -> int:
        return _raw_stream(where.index)


#: The interface of sdpa-ffi that this module was written for.
_EXECUTOR_ABI = 1


@cache
def executor() -> ModuleType:
    """sdpa-ffi, which only Linux has and only plans need."""
    try:
        import sdpa_ffi
    except ModuleNotFoundError as error:
        raise SdpaEnvironmentError(
            f"cuDNN's plans need sdpa-ffi ({error}). Install it with: pip install sdpa-ffi"
        ) from error
    if sdpa_ffi.EXECUTOR_ABI != _EXECUTOR_ABI:
        raise SdpaEnvironmentError(
            f"sdpa-torch needs executor ABI {_EXECUTOR_ABI}, sdpa-ffi has {sdpa_ffi.EXECUTOR_ABI}. "
            f"Install versions that belong together with: pip install -U sdpa-torch sdpa-ffi"
        )
    return sdpa_ffi


def _public_stream(index: int) -> int:
    return int(torch.cuda.current_stream(index).cuda_stream)


#: The public spelling builds a Stream object: 4.5 us on an H200's host against 0.14 us.
_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_stream)
