"""cuDNN's plans run on torch tensors: allocate the results, pack the operands, launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from types import ModuleType
from typing import Protocol

import torch
from torch import Tensor

from sdpa_core import AttentionProblem, DeviceSpec, Direction, Plan, TensorSpec
from sdpa_core.cudnn.graph import Operand
from sdpa_core.cudnn.probe import plan_or_refusal
from sdpa_core.errors import NoBackendError, SdpaEnvironmentError

from .convert import TORCH_DTYPES, misaligned, vector_ready

#: ``execute(operands in ascending uid, host scalars, workspace, stream)``.
Execute = Callable[[tuple[Tensor, ...], tuple[float, ...], Tensor | None, int], None]


class Runtime(Protocol):
    """Who plans and launches: cuDNN and the native executor, or their stand-in in tests."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan: ...

    def load(self, plan: Plan, where: torch.device) -> Execute: ...

    def stream(self, where: torch.device) -> int: ...


class NativeRuntime:
    """cuDNN through its frontend, launched by sdpa-ffi."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan:
        found = plan_or_refusal(problem, spec, direction)
        if isinstance(found, str):
            raise NoBackendError(f"cuDNN refuses this problem: {found}\n{problem}")
        return found

    def load(self, plan: Plan, where: torch.device) -> Execute:
        execute: Execute = _executor().load(plan.container, device=where.index).execute
        return execute

    def stream(self, where: torch.device) -> int:
        return _raw_stream(where.index)


#: The interface of sdpa-ffi that this module was written for.
_EXECUTOR_ABI = 1


@cache
def _executor() -> ModuleType:
    """sdpa-ffi, which only Linux has and only plans need."""
    import sdpa_ffi

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


class _Call:
    """A loaded plan with what every launch of it needs."""

    def __init__(
        self,
        problem: AttentionProblem,
        spec: DeviceSpec,
        direction: Direction,
        where: torch.device,
        runtime: Runtime,
    ) -> None:
        plan = runtime.plan(problem, spec, direction)
        self._where = where
        self._runtime = runtime
        self._execute = runtime.load(plan, where)
        self._workspace_bytes = plan.workspace_bytes
        self._constant_operands = tuple(o for o in plan.inputs if o.constant is not None)
        self._constants: tuple[Tensor, ...] | None = None
        self._results = tuple(_Result(operand) for operand in plan.outputs)

    def allocate(self) -> list[Tensor]:
        """Uninitialized results, in ascending uid."""
        where = self._where
        return [
            torch.empty_strided(result.shape, result.strides, dtype=result.dtype, device=where)
            for result in self._results
        ]

    def launch(self, operands: tuple[Tensor, ...], scale: float) -> None:
        where = self._where
        workspace = None
        if self._workspace_bytes:
            workspace = torch.empty(self._workspace_bytes, dtype=torch.uint8, device=where)
        if self._constant_operands:
            operands += self._filled()
        self._execute(operands, (scale,), workspace, self._runtime.stream(where))

    def _filled(self) -> tuple[Tensor, ...]:
        """Constant operands, kept on the device; they have the highest uids of all tensors.

        Memory that is allocated while a CUDA graph is captured belongs to that graph, so what is
        made then is not kept.
        """
        if self._constants is not None:
            return self._constants
        made = tuple(_full(operand, self._where) for operand in self._constant_operands)
        if self._where.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return made
        self._constants = made
        return made


class _Result:
    def __init__(self, operand: Operand) -> None:
        self.shape, self.strides = operand.shape, operand.strides
        self.dtype = TORCH_DTYPES[operand.dtype]


def _full(operand: Operand, where: torch.device) -> Tensor:
    dtype = TORCH_DTYPES[operand.dtype]
    return torch.full(operand.shape, int(operand.constant or 0), dtype=dtype, device=where)


class Forward:
    """Query, key, value -> output and, if the problem needs it, stats."""

    def __init__(
        self, problem: AttentionProblem, spec: DeviceSpec, where: torch.device, runtime: Runtime
    ) -> None:
        self._call = _Call(problem, spec, Direction.FORWARD, where, runtime)
        self._with_stats = problem.needs_stats

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, Tensor | None]:
        results = self._call.allocate()
        self._call.launch((query, key, value, *results), scale)
        return results[0], results[1] if self._with_stats else None


class Backward:
    """Gradients; one plan for each layout in which the output's gradient arrives."""

    def __init__(
        self, problem: AttentionProblem, spec: DeviceSpec, where: torch.device, runtime: Runtime
    ) -> None:
        self._problem = problem
        output = problem.output

        @lru_cache(maxsize=16)
        def call_for(strides: tuple[int, ...]) -> _Call:
            incoming = TensorSpec(output.shape, strides, output.dtype)
            wanted = replace(problem, grad_output=incoming)
            return _Call(wanted, spec, Direction.BACKWARD, where, runtime)

        self._call_for = call_for

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        stats: Tensor,
        grad_output: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        grad_output = self._readable(grad_output, output)
        call = self._call_for(grad_output.stride())
        grads = call.allocate()
        call.launch((query, key, value, output, stats, grad_output, *grads), scale)
        return grads[0], grads[1], grads[2]

    def _readable(self, grad_output: Tensor, output: Tensor) -> Tensor:
        """The gradient, or a copy stored like the output if cuDNN cannot read it in place.

        ``out.sum().backward()`` sends one element expanded over all axes (pytorch issue 134001).
        """
        if grad_output.stride() == output.stride():
            return _copy_like(grad_output, output) if misaligned(grad_output) else grad_output
        if 0 in grad_output.stride() or vector_ready(grad_output) is not grad_output:
            return _copy_like(grad_output, output)
        return grad_output


def _copy_like(tensor: Tensor, like: Tensor) -> Tensor:
    copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    return copy.copy_(tensor)
