"""Plans to build, and building one of them, in whichever process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from ...cudnn import probe, session
from ...cudnn.rules import reasons
from ...device import DeviceSpec
from ...direction import Direction
from ...fingerprint import fingerprint
from ...plan import BadPlanError, Plan
from ...policy import ask
from ...problem import AttentionProblem
from ...reasons import Unsupported, Verdict
from ...store import Folder, NotTrustedError, Pack, Provenance, unwrap, wrap
from ...words import summary
from .shapes import Shape

#: Of each reason no more is told: some quote cuDNN at length.
_LONGEST_REASON = 240


class Kind(StrEnum):
    """What became of a plan."""

    BUILT = "built"
    THERE = "already there"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Task:
    """A plan that is wanted.

    Attributes:
        problem: narrowed to the direction.
        where: the table that asked for it first.
        key: its fingerprint; empty if our rules refuse it, so that there is no plan.
        refusal: why they do.
    """

    problem: AttentionProblem
    device: DeviceSpec
    direction: Direction
    where: str
    key: str = ""
    refusal: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return summary(self.problem, self.direction)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task; ``reasons`` are all of a refusal, or what failed.

    Attributes:
        file: the plan as a store file, if it was asked for.
    """

    task: Task
    kind: Kind
    reasons: tuple[str, ...] = ()
    file: bytes | None = field(default=None, repr=False)


def tasks(
    shapes: Iterable[Shape], devices: Iterable[DeviceSpec], directions: Iterable[Direction]
) -> list[Task]:
    """Every plan that the problems take, once; a backward plan only where there is training."""
    found: dict[object, Task] = {}
    asked = [(shape, direction) for shape in shapes for direction in directions]
    version = session.frontend_version()
    for device in dict.fromkeys(devices):
        for shape, direction in asked:
            if direction is Direction.BACKWARD and not shape.problem.training:
                continue
            problem = shape.problem.for_direction(direction)
            refusal = reasons(problem, device, direction)
            if refusal:
                task = Task(problem, device, direction, shape.where, "", short(refusal))
                found.setdefault((problem, device, direction), task)
                continue
            key = fingerprint(problem, device, direction, version)
            found.setdefault(key, Task(problem, device, direction, shape.where, key))
    return list(found.values())


def short(refusal: Iterable[Unsupported]) -> tuple[str, ...]:
    """All reasons, without the hints."""
    texts = (f"{reason.what} = {reason.got}, needs {reason.need}" for reason in refusal)
    return tuple(dict.fromkeys(_cut(text) for text in texts))


def perform(task: Task, with_file: bool) -> Outcome:
    """Find or build a plan.

    Whatever goes wrong is an outcome: the other plans are built nevertheless.
    """
    if task.refusal:
        return Outcome(task, Kind.REFUSED, task.refusal)
    try:
        backend = probe.CudnnBackend()
        answer = ask(backend, task.problem, task.device, task.direction, probe=True)
        if answer.verdict is Verdict.REFUSED:
            return Outcome(task, Kind.REFUSED, short(answer.reasons))
        plan = probe.plan_or_refusal(task.problem, task.device, task.direction)
        assert isinstance(plan, Plan), "the answer was another one"
        kind = Kind.THERE if plan.stored else Kind.BUILT
        return Outcome(task, kind, (), _file(plan, task.label) if with_file else None)
    except Exception as error:  # noqa: BLE001 - cuDNN, the disk, a compiler: all are told
        return failed(task, f"{type(error).__name__}: {error}")


def failed(task: Task, text: str) -> Outcome:
    return Outcome(task, Kind.FAILED, (_cut(text),))


def lost(outcome: Outcome) -> Outcome:
    """The outcome of a plan that was to be kept on disk, if it is not there: a failure."""
    store = probe.store()
    if outcome.kind is not Kind.BUILT or store is None:
        return outcome
    if store.folder.path_of(outcome.task.key).exists():
        return outcome
    why = "it could not be written, or the folder is larger than SDPA_CACHE_BYTES"
    return failed(outcome.task, f"built, but not kept in {store.folder.path}: {why}")


def _file(plan: Plan, label: str) -> bytes:
    """The store's own file of a plan, else a new one."""
    return next(_kept(plan), None) or wrap(plan.container, Provenance.now(label))


def _kept(plan: Plan) -> Iterator[bytes]:
    store = probe.store()
    layers: tuple[Folder | Pack, ...] = () if store is None else (store.folder, *store.packs)
    for layer in layers:
        try:
            file = layer.read(plan.fingerprint)
            if file is not None and unwrap(file.data)[1] == plan.container:
                yield file.data
        except (BadPlanError, NotTrustedError, OSError):
            continue


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3]}..."
