"""The cuDNN backend's answers, and the plans behind them."""

from __future__ import annotations

from ..backend import Answer
from ..device import DeviceSpec
from ..events import stages
from ..fingerprint import fingerprint
from ..plan import Plan
from ..plan_cache import PlanCache
from ..problem import AttentionProblem, Direction
from ..reasons import Tier, Unsupported, Verdict
from ..words import summary
from . import session
from .builder import describe
from .rules import reasons

#: Every plan of the process, and cuDNN's words where it refused.
cache: PlanCache[Plan | str] = PlanCache()


def plan_or_refusal(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Plan | str:
    """The plan of one direction of a problem, or cuDNN's reason; built once per process.

    Raises:
        SdpaEnvironmentError: cuDNN cannot be asked on this machine.
    """
    problem = problem.for_direction(direction)
    key = fingerprint(problem, device, direction, session.frontend_version())
    return cache.get(
        key,
        lambda: _build(problem, device, direction, key),
        lambda: summary(problem, direction),
    )


def _build(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction, key: str
) -> Plan | str:
    with stages("describe"):
        spec = describe(problem, device, direction)
    try:
        built = session.build(spec, device)
    except session.GraphRefusedError as refusal:
        return str(refusal)
    return Plan(
        graph=spec,
        blob=built.blob,
        workspace_bytes=built.workspace_bytes,
        cudnn_version=session.cudnn_version(),
        frontend_version=session.frontend_version(),
        sm=device.sm,
        sm_count=device.sm_count,
        fingerprint=key,
        engine=built.engine,
    )


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
