"""A fault, what is found of it, and the table of all faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from .compare import any_wrong, words, wrong
from .graph import RefusedError
from .machine import Machine


class State(StrEnum):
    PRESENT = "present"
    GONE = "gone"
    REFUSED = "refused by cuDNN"
    #: By a machine that runs nothing.
    BUILT = "built"
    #: The script could not find out, for instance because CUDA failed.
    FAILED = "not found out"


@dataclass(frozen=True)
class Shown:
    """Whether something was wrong in one run, and how much."""

    wrong: bool
    figure: str


@dataclass(frozen=True)
class Outcome:
    """What became of one run; ``figure`` says how much was wrong, or why there is none."""

    state: State
    figure: str


@dataclass(frozen=True)
class Finding:
    """A fault as cuDNN has it, and with the remedy; None where the remedy is a refusal."""

    as_it_is: Outcome
    remedied: Outcome | None


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        name: what is wrong, for reports.
        held: where this library holds it: the name of a row of ``sdpa_core.cudnn.known_bad``, or a
            module with the remedy.
        remedy: what the library does; None: it refuses.
        show: runs it, without or with the remedy.
        breaks_cuda: where it is present CUDA fails, for the rest of the process.
    """

    name: str
    held: str
    remedy: str | None
    show: Callable[[Machine, bool], Shown]
    breaks_cuda: bool = False


#: All that are known.
FAULTS: list[Fault] = []

Show = Callable[[Machine, bool], Shown]


def fault(
    name: str, *, held: str, remedy: str | None, breaks_cuda: bool = False
) -> Callable[[Show], Show]:
    """Enter a function of a machine, and of whether the remedy is applied, into the table."""

    def enter(show: Show) -> Show:
        FAULTS.append(Fault(name, held, remedy, show, breaks_cuda))
        return show

    return enter


def against(got: Mapping[str, Tensor], want: Mapping[str, Tensor]) -> Shown:
    """Results beside the oracle's."""
    counts = wrong(got, want)
    return Shown(any_wrong(counts), words(counts))


def found(fault: Fault, machine: Machine) -> Finding:
    """What a fault shows on a machine; whatever happens, the others are still to be shown."""
    remedied = None if fault.remedy is None else _outcome(fault, machine, remedied=True)
    return Finding(_outcome(fault, machine, remedied=False), remedied)


#: What CUDA, and cuDNN, say of memory that was accessed and is nobody's.
_ILLEGAL = ("illegal memory access", "err 700")


def _outcome(fault: Fault, machine: Machine, *, remedied: bool) -> Outcome:
    try:
        shown = fault.show(machine, remedied)
    except RefusedError as refusal:
        return Outcome(State.REFUSED, str(refusal))
    except Exception as error:  # noqa: BLE001 (a broken cuDNN may fail in any way)
        text = " ".join(str(error).split())[:300]
        if fault.breaks_cuda and any(words in text for words in _ILLEGAL):
            return Outcome(State.PRESENT, text)
        return Outcome(State.FAILED, f"{type(error).__name__}: {text}")
    if not machine.runs:
        return Outcome(State.BUILT, "nothing was run")
    return Outcome(State.PRESENT if shown.wrong else State.GONE, shown.figure)
