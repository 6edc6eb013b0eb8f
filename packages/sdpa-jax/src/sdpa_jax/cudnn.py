"""cuDNN's plans called from JAX programs: operands in ascending uid, the workspace as a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from threading import Lock
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sdpa_core import (
    AttentionProblem,
    DeviceSpec,
    Direction,
    NoBackendError,
    Plan,
    SdpaEnvironmentError,
)
from sdpa_core.cudnn.graph import Operand
from sdpa_core.cudnn.probe import plan_or_refusal
from sdpa_core.layout import Shape

from .device import cuda_devices

#: The custom call of sdpa-ffi that executes a plan; exported programs hold this name.
TARGET = "sdpa_ffi.execute.v1"

_registering = Lock()  # functools.cache may run a function twice if two threads ask at once

#: The interface of sdpa-ffi that this module was written for.
_EXECUTOR_ABI = 1

#: Operands whose arrays are ``[B, T, N, H]``, which the graph sees as ``[B, H, S, D]`` with
#: strides. All others lie in memory as the graph sees them.
_TRANSPOSED = frozenset(
    ("query", "key", "value", "output", "grad_output", "grad_query", "grad_key", "grad_value")
)


class Runtime(Protocol):
    """Who plans and launches: cuDNN and the native executor, or their stand-in in tests."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan: ...

    def execute(
        self,
        plan: Plan,
        inputs: Sequence[Array],
        results: Sequence[jax.ShapeDtypeStruct],
        scale: float,
    ) -> list[Array]:
        """Results of a plan, as these are described.

        Args:
            plan: what to execute.
            inputs, results: in ascending uid, dense and row-major, in the order of axes that
                ``memory_axes`` gives.
            scale: of the logits.
        """
        ...


class NativeRuntime:
    """cuDNN through its frontend, launched by sdpa-ffi."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan:
        found = plan_or_refusal(problem, spec, direction)
        if isinstance(found, str):
            raise NoBackendError(f"cuDNN refuses this problem: {found}\n{problem}")
        return found

    def execute(
        self,
        plan: Plan,
        inputs: Sequence[Array],
        results: Sequence[jax.ShapeDtypeStruct],
        scale: float,
    ) -> list[Array]:
        if cuda_devices():  # elsewhere programs are only lowered, to be run by another process
            with _registering:
                register_executor()
        # A result and not scratch memory, because a command buffer keeps its address.
        workspace = jax.ShapeDtypeStruct((max(1, plan.workspace_bytes),), jnp.uint8)
        call = jax.ffi.ffi_call(TARGET, [*results, workspace], has_side_effect=False)
        scalars = np.full(len(plan.scalars), scale, np.float32)
        outputs: list[Array] = call(*inputs, plan=plan.container, scalars=scalars)
        return outputs[:-1]


@cache
def register_executor() -> None:
    """Tell XLA of the executor's custom call, once per process and after the CUDA client exists.

    Types come first: XLA looks up a handler's state type when the handler is registered.
    """
    try:
        import sdpa_ffi
    except ModuleNotFoundError as error:
        raise SdpaEnvironmentError(
            f"cuDNN's plans need sdpa-ffi ({error}). Install it with: pip install sdpa-ffi"
        ) from error
    if sdpa_ffi.EXECUTOR_ABI != _EXECUTOR_ABI:
        raise SdpaEnvironmentError(
            f"sdpa-jax needs executor ABI {_EXECUTOR_ABI}, sdpa-ffi has {sdpa_ffi.EXECUTOR_ABI}. "
            f"Install versions that belong together with: pip install -U sdpa-jax sdpa-ffi"
        )
    for name, state in sdpa_ffi.xla_types().items():
        jax.ffi.register_ffi_type(name, state, platform="CUDA")
    for name, handlers in sdpa_ffi.xla_targets().items():
        jax.ffi.register_ffi_target(name, handlers, platform="CUDA")


def run(
    problem: AttentionProblem,
    spec: DeviceSpec,
    direction: Direction,
    runtime: Runtime,
    scale: float,
    operands: Mapping[str, Array],
) -> dict[str, Array]:
    """One direction of a problem: its results by role.

    Args:
        problem: whose tensors are ``[B, H, S, D]`` with the strides of ``[B, T, N, H]`` arrays.
        spec: the device to plan for.
        direction: forward takes ``query``, ``key`` and ``value`` and gives ``output`` and, if the
            problem needs it, ``stats``; backward takes all of these and ``grad_output``, and gives
            ``grad_query``, ``grad_key`` and ``grad_value``.
        runtime: who plans and launches.
        scale: of the logits.
        operands: by role; ``[B, T, N, H]``, but ``stats`` ``[B, N, T, 1]``.
    """
    plan = runtime.plan(problem, spec, direction)
    results = [
        jax.ShapeDtypeStruct(memory_shape(operand), operand.dtype.value) for operand in plan.outputs
    ]
    inputs = [_input(operand, operands) for operand in plan.inputs]
    arrays = runtime.execute(plan, inputs, results, scale)
    return {operand.role: array for operand, array in zip(plan.outputs, arrays, strict=True)}


def memory_axes(operand: Operand) -> tuple[int, ...]:
    """The axes of the graph's operand in the order of its array."""
    return (0, 2, 1, 3) if operand.role in _TRANSPOSED else tuple(range(len(operand.shape)))


def memory_shape(operand: Operand) -> Shape:
    """The shape of an operand's array."""
    return tuple(operand.shape[axis] for axis in memory_axes(operand))


def _input(operand: Operand, given: Mapping[str, Array]) -> Array:
    if operand.constant is not None:
        return jnp.full(operand.shape, operand.constant, operand.dtype.value)
    return given[operand.role]
