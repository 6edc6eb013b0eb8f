"""Both verdicts on every problem: that of our rules, and cuDNN's, which builds each graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from sdpa_core import AttentionProblem, DeviceSpec, Direction
from sdpa_core.cudnn import builder, rules, session
from sdpa_core.cudnn.known_bad import KnownBad, Remedy, faults

from .problems import PROBLEMS

DEVICES = ("a100", "h200", "b200", "rtx5090")

#: name of a problem, name of a device, direction
Question = tuple[str, str, Direction]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of one direction of a problem on a device.

    Attributes:
        ours: the reasons of our rules, in their short form; empty if they accept it.
        words: cuDNN's words where it refuses; None where it builds a plan.
        faults: known-bad rows by which we refuse, whatever cuDNN says.
    """

    name: str
    device: str
    direction: Direction
    ours: tuple[str, ...]
    words: str | None
    faults: tuple[str, ...] = ()

    @property
    def agree(self) -> bool:
        return bool(self.faults) or bool(self.ours) == (self.words is not None)

    def __str__(self) -> str:
        ours = "; ".join(self.ours) or "accepted"
        theirs = f"refused: {self.words}" if self.words is not None else "built"
        return f"{self.name}, {self.device}, {self.direction}: we: {ours}. cuDNN: {theirs}"


def directions(problem: AttentionProblem) -> tuple[Direction, ...]:
    return tuple(Direction) if problem.training else (Direction.FORWARD,)


def questions(
    names: Iterable[str] = PROBLEMS, devices: Sequence[str] = DEVICES
) -> Iterator[Question]:
    """Every direction of the problems on the devices."""
    for name in names:
        for direction in directions(PROBLEMS[name]):
            for device in devices:
                yield name, device, direction


def ask(question: Question) -> Verdict:
    """Both verdicts. Nothing is cached: the graph is described and built here and now."""
    name, device_name, direction = question
    asked = PROBLEMS[name].for_direction(direction)
    device = DeviceSpec.named(device_name, cudnn_version=session.cudnn_version())
    return Verdict(
        name,
        device_name,
        direction,
        reasons_of(PROBLEMS[name], device, direction),
        _words(asked, device, direction),
        tuple(row.name for row in _refusing(asked, device, direction)),
    )


def reasons_of(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> tuple[str, ...]:
    """The reasons of our rules in their short form, each once."""
    found = rules.reasons(problem, device, direction)
    return tuple(dict.fromkeys(f"{reason.what}: {reason.need}" for reason in found))


def _words(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> str | None:
    try:
        session.build(builder.describe(problem, device, direction), device)
    except session.GraphRefusedError as refusal:
        return str(refusal)
    return None


def _refusing(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Iterator[KnownBad]:
    for row in faults(problem, device, direction):
        if row.remedy is Remedy.REFUSE:
            yield row


def ask_all(asked: Sequence[Question], processes: int = 2) -> Iterator[Verdict]:
    """Verdicts in the order of the questions. Processes start afresh: cuDNN is not forked."""
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(ask, asked, chunksize=8)
