"""Measures several peers on the same inputs, after checking that they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .peers.base import Call, Peer
from .timing import Clock, Plan, Rounds, Work, measure, median_of_medians, spread

#: Relative error that two right bfloat16 kernels may have to each other; they have a tenth of it.
TOLERANCE = 0.02

#: What a kind of measurement makes of a peer and its inputs.
Prepare = Callable[[Peer, Any], Call]

#: Clocks of all calls, how they measure, and how many calls make one sample.
Clocks = Callable[[Mapping[str, Work], Plan], tuple[dict[str, Clock], str, int]]

Difference = Callable[[Any, Any], float]


@dataclass(frozen=True)
class Comparison:
    """What one table row needs, with every sample.

    Attributes:
        kind: ``device``, ``wall`` or ``host`` time.
        framework: ``torch`` or ``jax``.
        what: ``forward``, ``backward``, ...
        row: name of the inputs.
        subject: the peer that is ours.
        rivals: the peers that it is compared with.
        flops: of one call; None where the figure would mean nothing.
        method: how it was measured.
        launches: calls in one sample.
        samples: by peer, in milliseconds of one call, a list for each round.
        differences: by peer, the largest relative difference of a result to the subject's.
        unavailable: by peer, why it was not measured.
    """

    kind: str
    framework: str
    what: str
    row: str
    subject: str
    rivals: tuple[str, ...]
    flops: float | None
    method: str = ""
    launches: int = 0
    samples: Mapping[str, Rounds] = field(default_factory=dict)
    differences: Mapping[str, float] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    def milliseconds(self, peer: str) -> float | None:
        """The median over the rounds of each round's median; None if it was not measured."""
        return median_of_medians(self.samples[peer]) if peer in self.samples else None

    def tflops(self, peer: str) -> float | None:
        time = self.milliseconds(peer)
        return None if time is None or self.flops is None else self.flops / (time * 1e9)

    @property
    def ratio(self) -> float | None:
        """Our time over the fastest rival's: below 1, we are faster."""
        ours = self.milliseconds(self.subject)
        theirs = [time for time in map(self.milliseconds, self.rivals) if time is not None]
        return ours / min(theirs) if ours is not None and theirs else None

    @property
    def noise(self) -> float:
        """The largest spread between the rounds of a peer that the ratio is made of."""
        counted = [name for name in (self.subject, *self.rivals) if name in self.samples]
        return max((spread(self.samples[name]) for name in counted), default=0.0)

    @property
    def faults(self) -> list[str]:
        """Why this comparison does not count: we did not run, or somebody is wrong."""
        where = f"{self.framework} {self.what} {self.row}"
        found = []
        if self.subject in self.unavailable:
            found.append(f"{where}: {self.subject}: {self.unavailable[self.subject]}")
        found += [
            f"{where}: {name} differs from {self.subject} by {difference:.2g}"
            for name, difference in self.differences.items()
            if not difference <= TOLERANCE
        ]
        return found

    def to_json(self) -> dict[str, Any]:
        peers = {
            name: {
                "median_ms": self.milliseconds(name),
                "tflops": self.tflops(name),
                "samples_ms": rounds,
                "difference": self.differences.get(name),
            }
            for name, rounds in self.samples.items()
        }
        return {
            "kind": self.kind,
            "framework": self.framework,
            "what": self.what,
            "row": self.row,
            "subject": self.subject,
            "rivals": list(self.rivals),
            "flops": self.flops,
            "method": self.method,
            "launches": self.launches,
            "ratio": self.ratio,
            "noise": self.noise,
            "peers": peers,
            "unavailable": dict(self.unavailable),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Comparison:
        peers = saved["peers"]
        return cls(
            **{
                name: saved[name]
                for name in ("kind", "framework", "what", "row", "subject", "flops", "method")
            },
            launches=saved["launches"],
            rivals=tuple(saved["rivals"]),
            samples={name: peer["samples_ms"] for name, peer in peers.items()},
            differences={
                name: peer["difference"]
                for name, peer in peers.items()
                if peer["difference"] is not None
            },
            unavailable=saved["unavailable"],
        )


def compare(
    peers: Sequence[Peer],
    inputs: Any,
    prepare: Prepare,
    clocks: Clocks,
    difference: Difference,
    plan: Plan,
    **about: Any,
) -> Comparison:
    """Time all peers that can run; a peer that fails is reported and left out.

    Args:
        peers: the subject first.
        inputs: of the peers' framework.
        prepare: what to time of each.
        clocks: how.
        difference: of two results.
        plan: how much.
        about: the other fields of ``Comparison``.
    """
    works: dict[str, Work] = {}
    unavailable: dict[str, str] = {}
    for peer in peers:
        reason = peer.unavailable()
        if reason is None:
            try:
                with peer.scope():
                    call = prepare(peer, inputs)
                    call()
                works[peer.name] = Work(call, peer.scope)
            except Exception as error:  # noqa: BLE001 (whatever a peer raises, the others are measured)
                reason = _one_line(error)
        if reason is not None:
            unavailable[peer.name] = reason
    subject = peers[0].name
    about |= {"subject": subject, "row": about.get("row", inputs.row.name)}
    if not works:
        return Comparison(**about, unavailable=unavailable)
    differences = _differences(works, subject, difference)
    found, method, launches = clocks(works, plan)
    return Comparison(
        **about,
        method=method,
        launches=launches,
        samples=measure(found, plan),
        differences=differences,
        unavailable=unavailable,
    )


def _differences(
    works: Mapping[str, Work], subject: str, difference: Difference
) -> dict[str, float]:
    """Of each peer to the subject; the largest of several results."""
    if subject not in works:
        return {}
    wanted = works[subject]()
    return {
        name: max(difference(a, b) for a, b in zip(work(), wanted, strict=True))
        for name, work in works.items()
        if name != subject
    }


def _one_line(error: Exception) -> str:
    text = ""
    with suppress(Exception):
        text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}"
