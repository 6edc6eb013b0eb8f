"""Faults of released cuDNN versions, as data: what is wrong, where it was seen, what we do.

A row stays until a newer cuDNN was shown to be right on hardware; its upper version bound is
then set. Each row names its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..device import DeviceSpec
from ..mask import Alignment
from ..problem import AttentionProblem, Direction


class Remedy(StrEnum):
    #: Refuse the problem.
    REFUSE = "refuse"
    #: Give cuDNN full sequence lengths, which takes another kernel path and hides nothing.
    FULL_LENGTHS = "full lengths"
    #: Choose among cuDNN's plans that need next to no workspace.
    NO_WORKSPACE = "no workspace"


@dataclass(frozen=True, slots=True)
class KnownBad:
    """One fault.

    Attributes:
        name: short, for reports.
        first, last: cuDNN versions affected, both included; None is unbounded. A device whose
            cuDNN is not known counts as affected.
        applies: whether a problem meets the fault.
        remedy: what we do.
        source: where it was reported or measured.
    """

    name: str
    first: int | None
    last: int | None
    applies: Callable[[AttentionProblem, DeviceSpec, Direction], bool]
    remedy: Remedy
    source: str

    def affects(self, version: int | None) -> bool:
        if version is None:
            return True
        return (self.first or 0) <= version and (self.last is None or version <= self.last)


def _half_empty_key_tile(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    backward = direction is Direction.BACKWARD
    return backward and p.band.is_full and p.key.shape[2] % 128 == 64


def _partial_key_tile(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.key.shape[2] % 128 != 0


def _window(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return p.band.left is not None and p.band.right != 0 and p.key.shape[2] > 1024


def _merged_statistics(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    forward = direction is Direction.FORWARD
    return forward and p.deterministic and p.is_decode and p.needs_stats


def _any(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return True


ROWS = (
    KnownBad(
        "dQ is NaN where the last key tile of 128 is half empty and LSE < -88.7",
        first=None,
        last=None,
        applies=_half_empty_key_tile,
        remedy=Remedy.FULL_LENGTHS,
        source="pytorch issue 196678; H200, cuDNN 9.19: any query length, head_dim 64 to 256, "
        "only without a band or lengths",
    ),
    KnownBad(
        "illegal memory access in a captured backward pass with a partial key tile",
        first=None,
        last=91500,
        applies=_partial_key_tile,
        remedy=Remedy.FULL_LENGTHS,
        source="TransformerEngine: get_attention_backend, cuDNN <= 9.15",
    ),
    KnownBad(
        "log-sum-exp of a single query differs from run to run where its keys are split",
        first=None,
        last=None,
        applies=_merged_statistics,
        remedy=Remedy.NO_WORKSPACE,
        source="H200, cuDNN 9.19, engine 8 with k24=35: 5 of 128 values in 200 runs, the output "
        "never; the plan carries no note. Its sibling without workspace is 5% slower and exact",
    ),
    KnownBad(
        "non-causal sliding window over more than 1024 keys gives NaN",
        first=91400,
        last=91400,
        applies=_window,
        remedy=Remedy.REFUSE,
        source="TransformerEngine issue 2344",
    ),
    KnownBad(
        "wrong results in 16-bit attention",
        first=91000,
        last=91001,
        applies=_any,
        remedy=Remedy.REFUSE,
        source="cudnn-frontend refuses cuDNN 9.10.0 and 9.10.1 for attention",
    ),
)


def faults(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Iterator[KnownBad]:
    """The rows that this problem meets on this device."""
    for row in ROWS:
        if row.affects(device.cudnn_version) and row.applies(problem, device, direction):
            yield row


def workspace_limit(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> int | None:
    """Bytes of workspace that a plan may use at most; None for any."""
    remedies = (row.remedy for row in faults(problem, device, direction))
    return _NEXT_TO_NOTHING if Remedy.NO_WORKSPACE in remedies else None


#: Some plans use a few hundred bytes for counters.
_NEXT_TO_NOTHING = 1024


def wants_full_lengths(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    """Whether the graph must be given sequence lengths although every sequence is full.

    Besides the faults: cuDNN takes a bottom-right band with more queries than keys only with
    lengths (its rows that see no key then get O = 0 and LSE = -inf, as they should).
    """
    unseen_rows = problem.band.alignment is Alignment.BOTTOM_RIGHT
    return unseen_rows or any(
        row.remedy is Remedy.FULL_LENGTHS for row in faults(problem, device, direction)
    )
