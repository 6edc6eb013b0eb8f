"""Who plans and launches: cuDNN and the native executor, or their stand-in in tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from threading import Lock
from types import ModuleType
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
from sdpa_core.cudnn.probe import plan_or_refusal, plan_that_loads

from ..device import cuda_devices

#: The custom call of sdpa-ffi that executes a plan; exported programs hold this name.
TARGET = "sdpa_ffi.execute.v1"

_registering = Lock()  # functools.cache may run a function twice if two threads ask at once

#: The interface of sdpa-ffi that this module was written for.
_EXECUTOR_ABI = 1


class Runtime(Protocol):
    """Who plans and launches: cuDNN and the native executor, or their stand-in in tests."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan: ...

    def execute(
        self,
        plan: Plan,
        inputs: Sequence[Array],
        results: Sequence[jax.ShapeDtypeStruct],
        scalars: Sequence[float],
    ) -> list[Array]:
        """Results of a plan, as these are described.

        Args:
            plan: what to execute.
            inputs, results: in ascending uid, dense and row-major, as ``operands`` describes them.
            scalars: in ascending uid.
        """
        ...


class NativeRuntime:
    """cuDNN through its frontend, launched by sdpa-ffi."""

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan:
        if spec.ordinal is None or not cuda_devices():
            found = plan_or_refusal(problem, spec, direction)
        else:
            # Loaded here already, where a plan of the store that the executor refuses can be
            # replaced; XLA then finds it loaded.
            load = partial(executor().load, device=spec.ordinal)
            found = plan_that_loads(problem, spec, direction, lambda plan: load(plan.container))
        if isinstance(found, str):
            raise NoBackendError(f"cuDNN refuses this problem: {found}\n{problem}")
        return found

    def execute(
        self,
        plan: Plan,
        inputs: Sequence[Array],
        results: Sequence[jax.ShapeDtypeStruct],
        scalars: Sequence[float],
    ) -> list[Array]:
        if cuda_devices():  # elsewhere programs are only lowered, to be run by another process
            with _registering:
                register_executor()
        # A result and not scratch memory, because a command buffer keeps its address.
        workspace = jax.ShapeDtypeStruct((max(1, plan.workspace_bytes),), jnp.uint8)
        call = jax.ffi.ffi_call(TARGET, [*results, workspace], has_side_effect=False)
        numbers = np.asarray(scalars, np.float32)
        outputs: list[Array] = call(*inputs, plan=plan.container, scalars=numbers)
        return outputs[:-1]


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
            f"sdpa-jax needs executor ABI {_EXECUTOR_ABI}, sdpa-ffi has {sdpa_ffi.EXECUTOR_ABI}. "
            f"Install versions that belong together with: pip install -U sdpa-jax sdpa-ffi"
        )
    return sdpa_ffi


@cache
def register_executor() -> None:
    """Tell XLA of the executor's custom call, once per process and after the CUDA client exists.

    Types come first: XLA looks up a handler's state type when the handler is registered.
    """
    for name, state in executor().xla_types().items():
        jax.ffi.register_ffi_type(name, state, platform="CUDA")
    for name, handlers in executor().xla_targets().items():
        jax.ffi.register_ffi_target(name, handlers, platform="CUDA")
