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
from sdpa_core.layout import canonical_strides

from .convert import TORCH_DTYPES, copied, is_regular, misaligned

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
        return plan_or_refusal(problem, spec, direction)

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


class _Call:
    """A loaded plan with what every launch of it needs."""

    def __init__(self, plan: Plan, where: torch.device, runtime: Runtime) -> None:
        self._where = where
        self._runtime = runtime
        self._execute = runtime.load(plan, where)
        self._workspace_bytes = plan.workspace_bytes
        self._constants = tuple(o for o in plan.inputs if o.constant is not None)
        self._results = tuple(
            (operand.shape, operand.strides, TORCH_DTYPES[operand.dtype])
            for operand in plan.outputs
        )

    def allocate(self) -> list[Tensor]:
        """Uninitialized results, in ascending uid."""
        return [
            torch.empty_strided(shape, strides, dtype=dtype, device=self._where)
            for shape, strides, dtype in self._results
        ]

    def launch(self, operands: tuple[Tensor, ...], scale: float) -> None:
        workspace = None
        if self._workspace_bytes:
            workspace = torch.empty(self._workspace_bytes, dtype=torch.uint8, device=self._where)
        if self._constants:
            # Made anew: a kept tensor would need events between streams, and would have to
            # outlive every CUDA graph that captured its address. They have the highest uids.
            operands += tuple(_filled(operand, self._where) for operand in self._constants)
        self._execute(operands, (scale,), workspace, self._runtime.stream(self._where))


def _filled(operand: Operand, where: torch.device) -> Tensor:
    dtype = TORCH_DTYPES[operand.dtype]
    return torch.full(operand.shape, int(operand.constant or 0), dtype=dtype, device=where)


class Forward:
    """Query, key, value -> output and, if the problem needs it, stats."""

    def __init__(
        self, problem: AttentionProblem, spec: DeviceSpec, where: torch.device, runtime: Runtime
    ) -> None:
        self._call = _Call(_planned(problem, spec, Direction.FORWARD, runtime), where, runtime)
        self._with_stats = problem.needs_stats

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, Tensor | None]:
        results = self._call.allocate()
        self._call.launch((query, key, value, *results), scale)
        return results[0], results[1] if self._with_stats else None


class Backward:
    """Gradients, with one plan for each layout in which the output's gradient arrives."""

    def __init__(
        self, problem: AttentionProblem, spec: DeviceSpec, where: torch.device, runtime: Runtime
    ) -> None:
        plan = _planned(problem, spec, Direction.BACKWARD, runtime)
        usual = _Call(plan, where, runtime)
        tensors = (problem.query, problem.key, problem.value, problem.output, problem.stats)
        self._strides = tuple(tensor.strides for tensor in tensors)
        self._usual = usual

        @lru_cache(maxsize=16)
        def call_for(strides: tuple[int, ...]) -> _Call | None:
            incoming = TensorSpec(problem.output.shape, strides, problem.output.dtype)
            wanted = replace(problem, grad_output=incoming)
            found = runtime.plan(wanted, spec, Direction.BACKWARD)
            # Not worth more workspace than policy has accepted for the usual layout.
            if isinstance(found, str) or found.workspace_bytes > plan.workspace_bytes:
                return None
            return _Call(found, where, runtime)

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
        saved = self._as_planned(query, key, value, output, stats)
        grad_output, call = self._incoming(grad_output)
        grads = call.allocate()
        call.launch((*saved, grad_output, *grads), scale)
        return grads[0], grads[1], grads[2]

    def _as_planned(self, *saved: Tensor) -> tuple[Tensor, ...]:
        """The saved tensors with the strides of the forward pass.

        ``torch.autograd.graph`` hooks (offloading to the host, say) may return others.
        """
        return tuple(
            tensor if _lies(tensor, strides) else copied(tensor, strides)
            for tensor, strides in zip(saved, self._strides, strict=True)
        )

    def _incoming(self, grad_output: Tensor) -> tuple[Tensor, _Call]:
        """The gradient and the plan that reads it; a copy stored like the output if none does.

        ``out.sum().backward()`` sends one element expanded over all axes (pytorch issue 134001).
        """
        usual = self._strides[3]
        if _lies(grad_output, usual):
            return grad_output, self._usual
        shape, strides = grad_output.shape, grad_output.stride()
        dense = 0 not in strides and is_regular(shape, strides, grad_output.element_size())
        if dense and not misaligned(grad_output):
            call = self._call_for(strides)
            if call is not None:
                return grad_output, call
        return copied(grad_output, usual), self._usual


def _planned(
    problem: AttentionProblem, spec: DeviceSpec, direction: Direction, runtime: Runtime
) -> Plan:
    found = runtime.plan(problem, spec, direction)
    if isinstance(found, str):
        raise NoBackendError(f"cuDNN refuses this problem: {found}\n{problem}")
    return found


def _lies(tensor: Tensor, strides: tuple[int, ...]) -> bool:
    """Whether a tensor lies in memory as planned; strides of length-1 axes do not matter."""
    given = tensor.stride()
    same = given == strides or canonical_strides(tensor.shape, given) == strides
    return same and not misaligned(tensor)
