"""cuDNN and the native executor, played by the oracle: for machines that have neither.

``FakeCudnn`` plans like the real session, but its plans are only described. Executing one checks
every operand against the description, computes with the oracle, and hands back the results. So
the whole of an adapter's cuDNN path runs anywhere: preparing operands, allocating results, packing
pointers by uid. Everything is read from the graph's options and from the operands, as cuDNN would
read it: the band, lengths, offsets, page tables, seeds, the function of the logits.

The fake also has cuDNN's faults, so that a forgotten remedy shows, and leaves NaN where cuDNN
writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..backend import Answer, Backend, ReferenceBackend
from ..cudnn.builder import describe
from ..cudnn.graph import GraphSpec
from ..cudnn.rules import reasons
from ..device import DeviceSpec
from ..fingerprint import fingerprint
from ..plan import Plan
from ..problem import AttentionProblem, Direction
from ..reasons import Tier, Unsupported, Verdict
from .fake_compute import Execution
from .fake_operands import OperandView, faults, sequence_faults
from .logits import Array

__all__ = ["FAKE_BACKENDS", "FakeCudnn", "OperandView", "RulesOnlyCudnn"]


class RulesOnlyCudnn:
    """The cuDNN backend with nobody to probe: what passes its rules counts as supported."""

    name = "cudnn"
    rules_suffice = True

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        return reasons(problem, device, direction)

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        return Answer(Verdict.SUPPORTED, (), Tier.RULES, 0)


#: The backends to choose from while cuDNN is played by the fake.
FAKE_BACKENDS: Mapping[str, Backend] = {
    "cudnn": RulesOnlyCudnn(),
    "reference": ReferenceBackend(),
}


@dataclass
class FakeCudnn:
    """Plans and executes without cuDNN.

    Attributes:
        frontend_version: that its plans claim.
        plans: by fingerprint, every plan that was made.
        executed: the plan of every execution, in order.
    """

    frontend_version: str = "1.32.0"
    plans: dict[str, Plan] = field(default_factory=dict)
    executed: list[Plan] = field(default_factory=list)

    def plan(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Plan:
        """The plan of a problem: its real description and key, and no kernel."""
        plan = Plan(
            graph=describe(problem, device, direction),
            blob=b"fake",
            workspace_bytes=0,
            cudnn_version=device.cudnn_version or 0,
            frontend_version=self.frontend_version,
            sm=device.sm,
            sm_count=device.sm_count,
            fingerprint=fingerprint(problem, device, direction, self.frontend_version),
            engine="fake",
        )
        self.plans[plan.fingerprint] = plan
        return plan

    def execute(
        self, plan: Plan, operands: Mapping[int, OperandView], scalars: Mapping[int, float]
    ) -> dict[int, Array]:
        """Check the operands and compute the results: by uid, float64, in their memory's shapes.

        Args:
            plan: what to execute; its blob is not looked at.
            operands: by uid, all device buffers: inputs, constants and results.
            scalars: by uid, all scalars that are read from the host.

        Raises:
            AssertionError: an operand is missing, unknown, or not as the graph describes it (the
                text names role, uid and property of each fault); lengths and offsets of packed
                sequences contradict each other or the memory; or a backward graph is given an
                output and statistics that its forward would not have computed.
        """
        graph = plan.graph
        _refuse(graph, list(faults(plan, operands, scalars)))
        values = {operand.role: operands[operand.uid].numbers() for operand in plan.inputs}
        rows = {
            operand.role: operands[operand.uid].array.shape[0]
            for operand in (*plan.inputs, *plan.outputs)
            if operand.ragged is not None
        }
        _refuse(graph, list(sequence_faults(graph, values, rows)))
        self.executed.append(plan)
        # The executor hands cuDNN float32.
        given = {operand.role: float(np.float32(scalars[operand.uid])) for operand in plan.scalars}
        results = Execution(graph, values, given, rows, plan.cudnn_version).results()
        return {operand.uid: results[operand.role] for operand in plan.outputs}


def _refuse(graph: GraphSpec, found: list[str]) -> None:
    if found:
        raise AssertionError("\n  ".join([f"wrong operands for {graph.operation}:", *found]))
