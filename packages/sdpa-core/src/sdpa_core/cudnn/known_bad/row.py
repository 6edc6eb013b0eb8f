"""What a row of the table of faults is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ...device import DeviceSpec
from ...problem import AttentionProblem, Direction


class Remedy(StrEnum):
    #: Refuse the problem.
    REFUSE = "refuse"
    #: Give cuDNN full sequence lengths, which takes another kernel path and hides nothing.
    FULL_LENGTHS = "full lengths"
    #: Choose among cuDNN's plans that do not split the keys of a query.
    WHOLE_KEYS = "whole keys"
    #: Write the results of sequences without keys once more, after the kernel.
    FIX_EMPTY = "fix empty"


@dataclass(frozen=True, slots=True)
class KnownBad:
    """One fault.

    Attributes:
        name: short, for reports.
        first: the first cuDNN affected; None: every older one is.
        fixed: the first cuDNN without the fault; None: none is known. A device whose cuDNN is not
            known counts as affected.
        applies: whether a problem meets the fault.
        remedy: what we do.
        source: where it was reported or measured.
        change: what a caller can do about a problem that is refused, besides a newer cuDNN.
    """

    name: str
    first: int | None
    fixed: int | None
    applies: Callable[[AttentionProblem, DeviceSpec, Direction], bool]
    remedy: Remedy
    source: str
    change: str = ""

    @property
    def affects_all(self) -> bool:
        """Whether no version is known to be without the fault."""
        return self.first is None and self.fixed is None

    def affects(self, version: int | None) -> bool:
        if version is None:
            return True
        return (self.first or 0) <= version and (self.fixed is None or version < self.fixed)
