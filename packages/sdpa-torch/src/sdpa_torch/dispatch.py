"""How each backend is called from torch, and the choice of one for each direction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sdpa_core import (
    AttentionProblem,
    Backend,
    Decision,
    DeviceSpec,
    Direction,
    decide,
    require,
)
from sdpa_core.config import Fallback, settings
from sdpa_core.diagnostics import warn_if_slow
from sdpa_core.registry import backends as known_backends
from sdpa_core.registry import callable_backends

from . import cudnn, device, reference
from .convert import copied


class Forward(Protocol):
    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> tuple[Tensor, Tensor | None]:
        """Output ``[B, Hq, Sq, Dv]`` and, if the problem needs it, stats ``[B, Hq, Sq, 1]``."""


class Backward(Protocol):
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
        """Gradients of query, key and value, stored like them."""


@dataclass(frozen=True)
class Environment:
    """Where decisions and plans come from; replaced as a whole by ``testing.fake_cudnn``."""

    device_spec: Callable[[torch.device], DeviceSpec]
    known: Callable[[], Mapping[str, Backend]]
    cudnn: cudnn.Runtime


REAL = Environment(device.device_spec, known_backends, cudnn.NativeRuntime())


@dataclass(frozen=True)
class Prepared:
    """A problem with the callables that were chosen for it."""

    problem: AttentionProblem
    decision: Decision
    environment: Environment
    device: torch.device
    forward: Forward
    backward: Backward | None


def callable_now(environment: Environment) -> Mapping[str, Backend]:
    """The backends there are; those without an implementation for torch refuse everything."""
    return callable_backends(environment.known(), ("cudnn", "reference"), "sdpa-torch")


def prepare(
    problem: AttentionProblem, where: torch.device, backend: str | None, environment: Environment
) -> Prepared:
    """Choose and set up the backends of a problem on a device.

    Raises:
        NoBackendError: none supports it, with every reason.
    """
    spec = environment.device_spec(where)
    decision = require(decide(problem, spec, backend=backend, known=callable_now(environment)))
    if backend is None and settings().fallback is Fallback.WARN:
        warn_if_slow(decision)
    chosen = {choice.direction: choice.backend for choice in decision.choices}
    build = _Builder(problem, decision.device, where, environment)
    return Prepared(
        problem,
        decision,
        environment,
        where,
        forward=build.forward(str(chosen[Direction.FORWARD])),
        backward=build.backward(str(chosen[Direction.BACKWARD])) if problem.training else None,
    )


@dataclass(frozen=True)
class _Builder:
    problem: AttentionProblem
    spec: DeviceSpec
    where: torch.device
    environment: Environment

    def forward(self, name: str) -> Forward:
        if name == "cudnn":
            return cudnn.Forward(self.problem, self.spec, self.where, self.environment.cudnn)
        if name == "reference":
            band, wanted = self.problem.band, self.problem.needs_stats
            strides = self.problem.output.strides

            def run(
                query: Tensor, key: Tensor, value: Tensor, scale: float
            ) -> tuple[Tensor, Tensor | None]:
                output, stats = reference.forward(query, key, value, band, scale)
                # Whatever backend runs, results are stored alike.
                same = output.stride() == strides
                return output if same else copied(output, strides), stats if wanted else None

            return run
        raise AssertionError(name)  # callable_now lets no other name through

    def backward(self, name: str) -> Backward:
        if name == "cudnn":
            return cudnn.Backward(self.problem, self.spec, self.where, self.environment.cudnn)
        if name == "reference":
            band = self.problem.band

            def run(
                query: Tensor,
                key: Tensor,
                value: Tensor,
                output: Tensor,
                stats: Tensor,
                grad_output: Tensor,
                scale: float,
            ) -> tuple[Tensor, Tensor, Tensor]:
                return reference.backward(
                    query, key, value, output, stats, grad_output, band, scale
                )

            return run
        raise AssertionError(name)  # callable_now lets no other name through
