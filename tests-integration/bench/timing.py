"""Turning clocks into figures: the order of the samples, and medians. No framework in here."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any

#: Takes one sample: the time of one call in milliseconds, averaged over a batch of calls.
Clock = Callable[[], float]

#: Samples of one peer, one list for each round.
Rounds = list[list[float]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: passes over all peers; the reported figure is the median of their medians.
        samples: samples of each peer in a round.
        batch_ms: least time of one sample, if ``max_launches`` allows it.
        max_launches: most calls in one sample.
    """

    rounds: int = 3
    samples: int = 5
    batch_ms: float = 20.0
    max_launches: int = 200

    def launches(self, milliseconds: float) -> int:
        """Calls in one sample, for calls that take so long: at least one, at most the limit."""
        return max(1, min(self.max_launches, ceil(self.batch_ms / max(milliseconds, 1e-6))))


def schedule(names: Sequence[str], plan: Plan) -> Iterator[tuple[int, str]]:
    """Who is sampled when: ``(round, name)``.

    Peers take turns, so that all see the same temperatures, each turn in another order: whoever
    always follows a slow kernel finds a rested chip (H200: after FlashAttention-2, which draws
    less power, any kernel ran up to 8% faster).
    """
    shuffle = random.Random(0)
    for number in range(plan.rounds):
        for _ in range(plan.samples):
            yield from ((number, name) for name in shuffle.sample(list(names), len(names)))


def measure(clocks: Mapping[str, Clock], plan: Plan) -> dict[str, Rounds]:
    """Every sample of every peer, in the order they were taken."""
    samples: dict[str, Rounds] = {name: [[] for _ in range(plan.rounds)] for name in clocks}
    for number, name in schedule(list(clocks), plan):
        samples[name][number].append(clocks[name]())
    return samples


def median_of_medians(rounds: Rounds) -> float:
    """The middle one of the rounds' medians: a slow sample moves it no further than its round."""
    return median(median(samples) for samples in rounds)


def spread(rounds: Rounds) -> float:
    """Largest over smallest median of a round, minus 1: differences below this are noise."""
    medians = [median(samples) for samples in rounds]
    return max(medians) / min(medians) - 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """A call that can be repeated inside one scope, which may be dear to enter."""

    call: Callable[[], Any]
    scope: Callable[[], AbstractContextManager[object]] = nullcontext

    def __call__(self, times: int = 1) -> Any:
        """Call so many times; the last result."""
        result = None
        with self.scope():
            for _ in range(times):
                result = self.call()
        return result


def wall_clock(work: Work, wait: Callable[[Any], object], calls: int) -> Clock:
    """The host's clock over some calls, until ``wait`` has seen the last one's result finished."""

    def sample() -> float:
        start = time.perf_counter()
        wait(work(calls))
        return (time.perf_counter() - start) * 1e3 / calls

    return sample


def host_clock(work: Work, wait: Callable[[], object], calls: int) -> Clock:
    """The time the host needs to issue a call: nothing is waited for while the clock runs."""

    def sample() -> float:
        wait()
        start = time.perf_counter()
        work(calls)
        elapsed = time.perf_counter() - start
        wait()
        return elapsed * 1e3 / calls

    return sample
