"""Faults of released cuDNN versions, and what to do about those that a problem meets.

Not here, because our graphs never meet it: on compute capability 12.x the gradients of packed
sequences are wrong if cuDNN is told how many keys there are in all (TransformerEngine issue 3333;
``options.direction_options``); a NaN in key or value rows past a sequence's length reaches its
results (the adapters clear those rows).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...device import DeviceSpec
from ...mask import Alignment
from ...problem import AttentionProblem, Direction
from .row import KnownBad as KnownBad
from .row import Remedy as Remedy
from .rows import ROWS as ROWS


def faults(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Iterator[KnownBad]:
    """The rows that this problem meets on this device."""
    for row in ROWS:
        if row.affects(device.cudnn_version) and row.applies(problem, device, direction):
            yield row


def wants_whole_keys(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    """Whether plans that split the keys of a query must not be used."""
    return any(row.remedy is Remedy.WHOLE_KEYS for row in faults(problem, device, direction))


def wants_full_lengths(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    """Whether the graph must be given sequence lengths although every sequence is full.

    Besides the faults: with more queries than keys cuDNN takes a band from the bottom right (whose
    rows that see no key then get O = 0 and LSE = -inf, as they should), or one with a left bound,
    only with lengths (cudnn-frontend 1.32, sdpa_support_surface.h).
    """
    from_bottom = problem.band.alignment is Alignment.BOTTOM_RIGHT
    more_queries = problem.band.left is not None and problem.tokens_q > problem.tokens_kv
    return (
        from_bottom
        or more_queries
        or any(row.remedy is Remedy.FULL_LENGTHS for row in faults(problem, device, direction))
    )
