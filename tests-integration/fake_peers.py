"""Peers of the benchmark that only pretend to compute, and their comparison."""

from __future__ import annotations

from contextlib import nullcontext

from bench.compare import compare
from bench.rows import Row
from bench.timing import Plan

TINY = Row(1, 2, 1, 16, 8, causal=True)

TIMES = {"sdpa_torch": 1.04, "torch CUDNN": 1.0, "pygraph": 2.0, "torch FLASH": 0.5}


class Fake:
    """A peer whose results are numbers."""

    def __init__(self, name, value=1.0, *, reason=None, error=None):
        self.name, self.value, self.reason, self.error = name, value, reason, error

    def unavailable(self):
        return self.reason

    def scope(self):
        return nullcontext()

    def forward(self, inputs):
        if self.error:
            raise self.error
        return lambda: (self.value,)

    backward = forward


class Inputs:
    row = TINY


def compared(*peers, times):
    """A comparison in which each peer takes as long as ``times`` says."""

    def clocks(works, plan):
        return {name: lambda name=name: times[name] for name in works}, "a made-up clock", 7

    return compare(
        peers,
        Inputs(),
        lambda peer, inputs: peer.forward(inputs),
        clocks,
        lambda a, b: abs(a - b) / abs(b),
        Plan(rounds=2, samples=2),
        kind="device",
        framework="torch",
        what="forward",
        rivals=("torch CUDNN", "pygraph"),
        flops=TINY.flops("forward"),
    )


def compared_all():
    """One peer that is not there, and one for each of ``TIMES``."""
    peers = [Fake(name) for name in TIMES]
    return compared(*peers, Fake("absent", reason="not installed"), times=TIMES)
