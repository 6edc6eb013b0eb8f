"""How each backend is called from JAX, and the choice of one for each direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import Context
from dataclasses import dataclass
from typing import Protocol

import jax
from jax import Array

import sdpa_core
from sdpa_core import (
    AttentionProblem,
    Backend,
    Decision,
    DeviceSpec,
    Direction,
    NoBackendError,
    Unsupported,
)
from sdpa_core.config import Fallback, preferred_backends, settings
from sdpa_core.diagnostics import warn_if_slow
from sdpa_core.registry import backends as known_backends
from sdpa_core.registry import callable_backends

from . import cudnn, device, reference

#: jax.nn's name for what it does without a kernel library.
_ALIASES = {"xla": "reference"}


@dataclass(frozen=True)
class Environment:
    """Where decisions and plans come from; replaced as a whole by ``testing.fake_cudnn``."""

    device_spec: Callable[[str, bool], DeviceSpec]
    known: Callable[[], Mapping[str, Backend]]
    cudnn: cudnn.Runtime

    def callable_now(self) -> Mapping[str, Backend]:
        """The backends there are; those without an implementation for JAX refuse everything."""
        return callable_backends(self.known(), ("cudnn", "reference"), "sdpa-jax")


REAL = Environment(device.device_spec, known_backends, cudnn.NativeRuntime())

# JAX keeps what it traced and compiled by the values of such contexts, so that a function
# jitted outside of a ``with`` block is traced again inside it.
_environment = jax.make_user_context(REAL)
_cuda_device = jax.make_user_context(None)
_preferred = jax.make_user_context(())


@contextmanager
def backends(*names: str) -> Iterator[None]:
    """Use only these backends, in this order, inside a ``with`` block.

    It acts when a call is traced; ``sdpa_core.backends`` does too, but JAX does not know of it and
    may take what it compiled outside.

    Raises:
        ValueError: no name is given. A name that no installed package provides is an error of the
            call inside.
    """
    names = tuple(_ALIASES.get(name, name) if isinstance(name, str) else name for name in names)
    with sdpa_core.backends(*names), _preferred(names):
        yield


@contextmanager
def lowering_device(spec: DeviceSpec | str) -> Iterator[None]:
    """Plan CUDA programs for this device, present or not, inside a ``with`` block.

    It acts when a call is traced. Programs for other platforms are not affected::

        with sdpa_jax.lowering_device("h200"):
            lowered = jax.jit(f).trace(*arguments).lower(lowering_platforms=("cuda",))

    Args:
        spec: a device or the name of one, see ``DeviceSpec.named``.

    Raises:
        ValueError: the name is not known, or the device is no CUDA device.
    """
    chosen = device.resolve(spec)
    if chosen.platform != "cuda":
        raise ValueError(f"lowering_device = {chosen}; expected a CUDA device")
    with _cuda_device(chosen):
        yield


@contextmanager
def replaced(environment: Environment) -> Iterator[None]:
    """Take decisions and plans from elsewhere inside a ``with`` block."""
    with _environment(environment):
        yield


@dataclass(frozen=True, slots=True)
class Selection:
    """What decides between backends besides the problem, as it was when the call was traced.

    Attributes:
        backend: the only one that may run; None: whichever is best.
        preferred: names of the context manager or of the settings, in order.
        cuda_device: what CUDA programs are planned for; None: a device of this process.
    """

    backend: str | None
    preferred: tuple[str, ...]
    cuda_device: DeviceSpec | None
    environment: Environment

    @classmethod
    def current(cls, implementation: str | None) -> Selection:
        """The selection of a call made here and now.

        Raises:
            TypeError, ValueError: ``implementation`` is no name, or that of no installed package.
        """
        environment: Environment = _environment.value
        if implementation is not None and not isinstance(implementation, str):
            raise TypeError(f"implementation is {implementation!r}; expected a name or None")
        backend = implementation and _ALIASES.get(implementation, implementation)
        known = environment.callable_now()
        if backend is not None and backend not in known:
            allowed = ", ".join((*_ALIASES, *known))
            raise ValueError(f"implementation = {implementation!r}; expected one of {allowed}")
        return cls(backend, preferred_backends(), _cuda_device.value, environment)

    def device_spec(self, platform: str) -> DeviceSpec:
        """The device that a program for this lowering platform runs on."""
        if platform == "cuda" and self.cuda_device is not None:
            return self.cuda_device
        names = (self.backend,) if self.backend else self.preferred
        return self.environment.device_spec(platform, not names or "cudnn" in names)

    def decide(
        self, problem: AttentionProblem, spec: DeviceSpec, *, probe: bool = True
    ) -> Decision:
        """The choice of a backend for each direction of a problem."""
        # An empty context: what was preferred when the call was traced counts, not what is now.
        return Context().run(self._decide, problem, spec, probe)

    def _decide(self, problem: AttentionProblem, spec: DeviceSpec, probe: bool) -> Decision:
        preferred = sdpa_core.backends(*self.preferred) if self.preferred else nullcontext()
        with preferred:
            return sdpa_core.decide(
                problem,
                spec,
                backend=self.backend,
                probe=probe,
                known=self.environment.callable_now(),
                against=self._elsewhere(spec),
            )

    def _elsewhere(self, spec: DeviceSpec) -> tuple[Unsupported, ...]:
        """What is against cuDNN, named alone, on another platform; tells what to do."""
        names = (self.backend,) if self.backend else self.preferred
        if spec.platform == "cuda" or names != ("cudnn",):
            return ()
        instead = "leave implementation out" if self.backend else "allow another backend"
        hint = f"run it on a CUDA device (jax.device_put), or {instead}"
        return (Unsupported("platform", spec.platform, "cuda", hint),)


#: An implementation of one direction: arrays by role in, arrays by role out, see ``calls``.
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


class Launch(Protocol):
    """What a call adds to its problem: see ``call.Call``."""

    @property
    def selection(self) -> Selection: ...

    @property
    def scalars(self) -> tuple[float, ...]: ...

    @property
    def slack_is_finite(self) -> bool: ...


def prepare(problem: AttentionProblem, platform: str, direction: Direction, call: Launch) -> Run:
    """Choose the backend of one direction for a lowering platform.

    Raises:
        NoBackendError: none supports the problem, with every reason.
    """
    selection = call.selection
    spec = selection.device_spec(platform)
    decision = sdpa_core.require(selection.decide(problem, spec))
    if selection.backend is None and settings().fallback is Fallback.WARN:
        warn_if_slow(decision)
    choice = decision.forward if direction is Direction.FORWARD else decision.backward
    name = choice.backend if choice else None
    if name == "cudnn":
        launch = cudnn.Launch(
            problem,
            spec,
            direction,
            selection.environment.cudnn,
            call.scalars,
            call.slack_is_finite,
        )
        return launch.run
    if name == "reference":
        run = reference.forward if direction is Direction.FORWARD else reference.backward
        return lambda operands: run(problem, call.scalars, operands)
    raise NoBackendError(f"backend {name!r} has no JAX implementation; upgrade sdpa-jax")
