"""The cuDNN backend's answers, and the plans behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache as once

from ..backend import Answer
from ..config import Settings, settings
from ..device import DeviceSpec
from ..errors import SdpaEnvironmentError
from ..events import stages
from ..fingerprint import fingerprint
from ..plan import Expected, Plan
from ..plan_cache import PlanCache
from ..problem import AttentionProblem, Direction
from ..reasons import Tier, Unsupported, Verdict
from ..store import Store, open_store
from ..words import summary
from . import session
from .builder import describe
from .refusal import GraphRefusedError
from .rules import reasons

#: Every plan of the process, and cuDNN's words where it refused.
cache: PlanCache[Plan | str] = PlanCache()


def _count(kind: str) -> None:
    cache.count(kind)


@once
def _store(wanted: Settings) -> Store | None:
    return open_store(wanted, _count)


def store() -> Store | None:
    """The plans on disk, as the settings want them; None if they are off."""
    return _store(settings())


def plan_or_refusal(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Plan | str:
    """The plan of one direction of a problem, or cuDNN's reason.

    From memory, else from the store, else built; refusals are kept in memory only.

    Raises:
        SdpaEnvironmentError: cuDNN cannot be asked on this machine.
    """
    problem = problem.for_direction(direction)
    if device.cudnn_version is None:
        device = replace(device, cudnn_version=session.cudnn_version())
    key = fingerprint(problem, device, direction, session.frontend_version())

    def label() -> str:
        return summary(problem, direction)

    wanted = _Wanted(problem, device, direction, key)
    kept = store()
    below = None if kept is None else _Stored(kept, wanted, label)
    return cache.get(key, wanted.build, label, below)


def plan_that_loads(
    problem: AttentionProblem,
    device: DeviceSpec,
    direction: Direction,
    load: Callable[[Plan], object],
) -> Plan | str:
    """``plan_or_refusal``, of which an executor has loaded the plan.

    A plan from the store that the executor refuses is discarded and built again, once.

    Args:
        load: makes the executor load a plan; ``ValueError`` or ``RuntimeError`` if it cannot.

    Raises:
        SdpaEnvironmentError: something is missing on this machine; not the plan's fault.
        ValueError, RuntimeError: from ``load``, for a plan that this process has built.
    """
    found = plan_or_refusal(problem, device, direction)
    if isinstance(found, str):
        return found
    try:
        load(found)
    except SdpaEnvironmentError:
        raise
    except (ValueError, RuntimeError) as error:
        if not found.stored:
            raise
        discard(found, error)
    else:
        return found
    found = plan_or_refusal(problem, device, direction)
    if not isinstance(found, str):
        load(found)
    return found


def discard(plan: Plan, error: BaseException) -> None:
    """Forget a plan that an executor refused, in memory and on disk; the next ask builds it."""
    cache.discard(plan.fingerprint, plan)
    kept = store()
    if kept is not None:
        kept.discard(plan, error)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A plan that is asked for."""

    problem: AttentionProblem
    device: DeviceSpec
    direction: Direction
    key: str

    def expected(self) -> Expected:
        with stages("describe"):
            graph = describe(self.problem, self.device, self.direction)
        return Expected(
            graph=graph,
            fingerprint=self.key,
            cudnn_version=self.device.cudnn_version or session.cudnn_version(),
            frontend_version=session.frontend_version(),
            sm=self.device.sm,
            sm_count=self.device.sm_count,
        )

    def build(self) -> Plan | str:
        expected = self.expected()
        try:
            built = session.build(expected.graph, self.device)
        except GraphRefusedError as refusal:
            return str(refusal)
        return Plan(
            graph=expected.graph,
            blob=built.blob,
            workspace_bytes=built.workspace_bytes,
            cudnn_version=expected.cudnn_version,
            frontend_version=expected.frontend_version,
            sm=expected.sm,
            sm_count=expected.sm_count,
            fingerprint=expected.fingerprint,
            engine=built.engine,
        )


@dataclass(frozen=True, slots=True)
class _Stored:
    """The store, for one plan."""

    store: Store
    wanted: _Wanted
    label: Callable[[], str]

    def load(self) -> Plan | str | None:
        return self.store.get(self.wanted.expected(), self.label)

    def save(self, value: Plan | str) -> Plan | str:
        return value if isinstance(value, str) else self.store.put(value, self.label)


class CudnnBackend:
    """cuDNN's fused attention, forward and backward."""

    name = "cudnn"
    rules_suffice = False

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        return reasons(problem, device, direction)

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        found = plan_or_refusal(problem, device, direction)
        if isinstance(found, str):
            reason = Unsupported("cuDNN's answer", found, "a graph it supports")
            return Answer(Verdict.REFUSED, (reason,), Tier.PROBE)
        return Answer(Verdict.SUPPORTED, (), Tier.PROBE, found.workspace_bytes)
