"""What a backend must answer. How it is called is each framework adapter's affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .device import DeviceSpec
from .problem import AttentionProblem, Direction
from .reasons import Tier, Unsupported, Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """A backend's answer to one problem in one direction.

    Attributes:
        verdict: refused, supported, or not asked (only rules were consulted, and they pass).
        reasons: why it was refused; empty otherwise.
        tier: who answered.
        workspace_bytes: device memory a call needs besides its results; None if not known.
    """

    verdict: Verdict
    reasons: tuple[Unsupported, ...]
    tier: Tier
    workspace_bytes: int | None = None


class Backend(Protocol):
    """An implementation of attention, or of one direction of it."""

    @property
    def name(self) -> str: ...

    @property
    def rules_suffice(self) -> bool:
        """Whether passing the rules is a promise, because there is no library underneath."""
        ...

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        """Every reason our rules know; empty if none. Runs nothing and needs no GPU."""
        ...

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        """The answer of the library underneath, for a problem that passed the rules.

        May take as long as building a kernel; cached. ``NOT_ASKED`` where it cannot be asked.
        """
        ...


class ReferenceBackend:
    """The adapters' own implementation in plain framework operations: everything, slowly."""

    name = "reference"
    rules_suffice = True

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        del problem, device, direction
        return ()

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        del problem, device, direction
        return Answer(Verdict.SUPPORTED, (), Tier.RULES, 0)
