"""What both directions of a problem are set up from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sdpa_core import AttentionProblem, DeviceSpec, Direction, Plan
from sdpa_core.errors import NoBackendError

from ..features import Features
from .runtime import Runtime


@dataclass(frozen=True)
class Setting:
    """A problem on a device.

    Attributes:
        problem: what to compute.
        features: the same, as the adapter's own steps read it.
        spec: the device's description.
        where: the device.
        runtime: who plans and launches.
    """

    problem: AttentionProblem
    features: Features
    spec: DeviceSpec
    where: torch.device
    runtime: Runtime

    def planned(self, direction: Direction) -> Plan:
        """The problem's plan.

        Raises:
            NoBackendError: cuDNN refuses; policy had accepted it.
        """
        found = self.runtime.plan(self.problem, self.spec, direction)
        if isinstance(found, str):
            raise NoBackendError(f"cuDNN refuses this problem: {found}\n{self.problem}")
        return found
