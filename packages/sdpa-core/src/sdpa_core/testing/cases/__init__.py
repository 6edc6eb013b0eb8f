"""Named attention problems with data: what every backend is tried on.

Sizes are small, so that all of ``CASES`` run in seconds on a CPU; ``LARGE_CASES`` are for GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from ...dtypes import DType
from ..case import Case as Case
from ..case import Inputs as Inputs
from .biases import ALIBI, BIASES, MASKS
from .dense import DENSE
from .dropouts import DROPOUTS
from .functions import SCORE_MOD_CASES, SOFTCAPS
from .large import LARGE
from .lengths import LENGTHS
from .memory import LAYOUTS
from .neighbours import NEIGHBOURS as NEIGHBOURS
from .packed import PACKED
from .paged import PAGED
from .softmaxes import SOFTMAXES
from .windows import WINDOWS

#: Each case for one reason.
CASES = (
    *DENSE,
    *LAYOUTS,
    *WINDOWS,
    *BIASES,
    *MASKS,
    *ALIBI,
    *LENGTHS,
    *SOFTMAXES,
    *SOFTCAPS,
    *SCORE_MOD_CASES,
    *DROPOUTS,
    *PACKED,
    *PAGED,
)

#: Many tiles and partial last ones, for GPUs.
LARGE_CASES = LARGE


def cases_by_report() -> dict[str, tuple[Case, ...]]:
    """The cases that repeat each bug report, pairs of ``NEIGHBOURS`` included."""
    every = (*CASES, *LARGE_CASES, *(case for pair in NEIGHBOURS for case in pair))
    reports = sorted({report for case in every for report in case.reports}, key=_number)
    return {report: tuple(case for case in every if report in case.reports) for report in reports}


def in_16_bits(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases for a backend that takes 16-bit operands only: float32 ones in bfloat16.

    Float32 is the oracle's sharpest look at a feature, and cuDNN refuses it: without this its path
    would be given most features never.
    """
    return tuple(
        replace(case, dtype=DType.BFLOAT16) if case.dtype is DType.FLOAT32 else case
        for case in cases
    )


def covering(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """A part of the cases in which every two features that meet in one of them meet, in order.

    For implementations that take long for each case, such as those that compile it. Features are
    tags, element types and layouts. Chosen greedily, always the same.
    """
    missing = {case: frozenset(combinations(sorted(_features(case)), 2)) for case in cases}
    uncovered = frozenset().union(*missing.values())
    chosen: set[Case] = set()
    while uncovered:
        best = max(cases, key=lambda case: len(missing[case] & uncovered))
        chosen.add(best)
        uncovered -= missing[best]
    return tuple(case for case in cases if case in chosen)


def _features(case: Case) -> set[str]:
    return {*case.tags, f"dtype {case.dtype}", f"layout {case.layout}"}


def _number(report: str) -> int:
    return int(report.removeprefix("R"))
