"""What the backend can run. So far nothing, and it says so."""

from __future__ import annotations

from sdpa_core.backend import Answer
from sdpa_core.device import DeviceSpec
from sdpa_core.problem import AttentionProblem, Direction
from sdpa_core.reasons import Tier, Unsupported, Verdict

NOT_YET = Unsupported(
    what="kernels in sdpa_cutedsl",
    got="none yet",
    need="a release of sdpa-cutedsl that has them",
    hint="leave backend unset, or name 'cudnn' or 'reference'",
)


class CuteDslBackend:
    """Refuses every problem, with the reason."""

    name = "cutedsl"

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        """The one reason there is; runs nothing."""
        del problem, device, direction
        return (NOT_YET,)

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        """The same answer: there is no library to ask."""
        reasons = self.unsupported_reasons(problem, device, direction)
        return Answer(Verdict.REFUSED, reasons, Tier.RULES)


def backend() -> CuteDslBackend:
    """The entry point in the group ``sdpa_core.backends``."""
    return CuteDslBackend()
