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
    Unsupported,
    decide,
    require,
)
from sdpa_core.config import Fallback, preferred_backends, settings
from sdpa_core.diagnostics import warn_if_slow
from sdpa_core.registry import backends as known_backends
from sdpa_core.registry import callable_backends

from . import cudnn, device, reference
from .convert import copied
from .features import Features


class Forward(Protocol):
    def __call__(
        self, tensors: tuple[Tensor, ...], scalars: tuple[float, ...]
    ) -> tuple[Tensor, ...]:
        """``problem.results`` from ``problem.inputs``, both in their order.

        Output ``[B, Hq, Sq, Dv]``, stats ``[B, Hq, Sq, 1]`` (packed queries: ``[tokens, Hq, Dv]``
        and ``[tokens, Hq, 1]``), largest logits ``[Hq]``. ``scalars`` are the scale and the
        numbers of ``score_mod``.
        """


class Backward(Protocol):
    def __call__(
        self, tensors: tuple[Tensor, ...], scalars: tuple[float, ...]
    ) -> tuple[Tensor, ...]:
        """``problem.gradients`` from ``problem.inputs``, output, stats and the output's gradient.

        Each is stored like the operand it belongs to.
        """


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


def elsewhere(backend: str | None, spec: DeviceSpec) -> tuple[Unsupported, ...]:
    """What is against cuDNN, named alone, for operands on another device; tells what to do."""
    names = (backend,) if backend else preferred_backends()
    if spec.platform == "cuda" or names != ("cudnn",):
        return ()
    instead = "leave backend out" if backend else "allow another backend"
    hint = f"move query, key and value to a CUDA device, or {instead}"
    return (Unsupported("query.device", spec.platform, "a CUDA device", hint),)


def prepare(
    problem: AttentionProblem,
    features: Features,
    where: torch.device,
    backend: str | None,
    environment: Environment,
) -> Prepared:
    """Choose and set up the backends of a problem on a device.

    Raises:
        NoBackendError: none supports it, with every reason.
    """
    spec = environment.device_spec(where)
    known, against = callable_now(environment), elsewhere(backend, spec)
    decision = require(decide(problem, spec, backend=backend, known=known, against=against))
    if backend is None and settings().fallback is Fallback.WARN:
        warn_if_slow(decision)
    chosen = {choice.direction: choice.backend for choice in decision.choices}
    build = _Builder(problem, features, decision.device, where, environment)
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
    features: Features
    spec: DeviceSpec
    where: torch.device
    environment: Environment

    def forward(self, name: str) -> Forward:
        if name == "cudnn":
            return cudnn.Forward(self.call)
        if name == "reference":
            return _reference_forward(self.problem, self.features)
        raise AssertionError(name)  # callable_now lets no other name through

    def backward(self, name: str) -> Backward:
        if name == "cudnn":
            return cudnn.Backward(self.call)
        if name == "reference":
            return _reference_backward(self.problem, self.features)
        raise AssertionError(name)  # callable_now lets no other name through

    @property
    def call(self) -> cudnn.Setting:
        runtime = self.environment.cudnn
        return cudnn.Setting(self.problem, self.features, self.spec, self.where, runtime)


def _reference_forward(problem: AttentionProblem, features: Features) -> Forward:
    strides, with_stats = problem.output.strides, problem.needs_stats
    packed = problem.packed_q is not None

    def run(tensors: tuple[Tensor, ...], scalars: tuple[float, ...]) -> tuple[Tensor, ...]:
        output, *others = reference.forward(tensors, scalars, features)
        if not packed and output.stride() != strides:
            output = copied(output, strides)  # whatever backend runs, results are stored alike
        return (output, *(others if with_stats else others[1:]))

    return run


def _reference_backward(problem: AttentionProblem, features: Features) -> Backward:
    further = tuple(name.removeprefix("grad_") for name in problem.gradients[3:])

    def run(tensors: tuple[Tensor, ...], scalars: tuple[float, ...]) -> tuple[Tensor, ...]:
        return reference.backward(tensors, scalars, features, further)

    return run
