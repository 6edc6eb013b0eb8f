"""docs/support-matrix.md: one table for each topic, from answers to every problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sdpa_core import DeviceSpec, Direction
from sdpa_core.cudnn.known_bad import ROWS, KnownBad
from sdpa_core.device import format_version

from .answers import Answers
from .problems import TOPICS
from .verdicts import DEVICES, Verdict

Cell = tuple[str, str]  # name of a problem, name of a device


def text(answers: Sequence[Answers]) -> str:
    """The page. Answers of all pairs of versions, the oldest cuDNN first."""
    by_cudnn = {one.versions.cudnn: one for one in answers}
    lines = [*_introduction(answers), *_disagreements(answers), ""]
    for topic, problems in TOPICS.items():
        lines += [f"## {topic}", "", *_table(list(problems), by_cudnn), ""]
    lines += [*_faults(answers), "", *_frontends(answers)]
    return "\n".join(lines).rstrip() + "\n"


def _introduction(answers: Sequence[Answers]) -> Iterator[str]:
    names = {verdict.name for one in answers for verdict in one.verdicts}
    graphs = max((len(one.verdicts) for one in answers), default=0)
    pairs = "; ".join(str(one.versions) for one in answers)
    yield "# Support matrix"
    yield ""
    yield (
        "What cuDNN runs, on which GPU, with which version. Everything else runs with the "
        "reference, or is refused with the reasons below; `explain()` tells them for any call. "
        "float32 and float64 are the reference's."
    )
    yield ""
    yield (
        "This page is made by `nox -s support_matrix`, without a GPU: it asks the library's rules, "
        f"and has cuDNN build each graph, for {len(names)} problems and {len(DEVICES)} GPUs "
        f"({graphs} graphs a pair of versions), and fails if they disagree. Asked were: {pairs}. "
        "That cuDNN builds a graph does not say that its results are right; what is known to be "
        "wrong is in the last table."
    )
    yield ""
    yield (
        "Where nothing else is said: bfloat16, batch 2, 8 heads, 256 queries and keys, head_dim "
        "128, training. A cell says `yes`, or `forward` if there is no backward pass, or `no`; "
        "where versions of cuDNN differ, what each of them does. Numbers point at the reasons."
    )
    yield ""


def _disagreements(answers: Sequence[Answers]) -> Iterator[str]:
    found = [(one.versions, verdict) for one in answers for verdict in one.disagreements]
    if found:
        yield "**The rules and cuDNN disagree here:**"
        yield ""
        yield from (f"- {versions}: {verdict}" for versions, verdict in found)


# ---------------------------------------------------------------------------------- tables


@dataclass
class _Reasons:
    """Reasons of one table, numbered in the order in which they are first told."""

    numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, reasons: Iterable[str]) -> str:
        numbers = {self.numbers.setdefault(one, len(self.numbers) + 1) for one in reasons}
        return "".join(f" [{number}]" for number in sorted(numbers))

    def lines(self) -> Iterator[str]:
        for reason, number in self.numbers.items():
            yield f"{number}. {_escaped(reason)}"


def _table(names: Sequence[str], by_cudnn: dict[int, Answers]) -> Iterator[str]:
    verdicts = {
        (version, verdict.name, verdict.device, verdict.direction): verdict
        for version, one in by_cudnn.items()
        for verdict in one.verdicts
    }
    reasons = _Reasons()
    heads = [DeviceSpec.named(device) for device in DEVICES]
    yield "| | " + " | ".join(f"{_model(head)} ({head.sm / 10})" for head in heads) + " |"
    yield "|---" * (len(DEVICES) + 1) + "|"
    for name in names:
        cells = []
        for device in DEVICES:
            by_version = {
                version: [
                    verdicts[version, name, device, direction]
                    for direction in Direction
                    if (version, name, device, direction) in verdicts
                ]
                for version in sorted(by_cudnn, reverse=True)
            }
            cells.append(_cell(by_version, reasons))
        yield f"| {_escaped(name)} | " + " | ".join(cells) + " |"
    if reasons.numbers:
        yield ""
        yield from reasons.lines()


def _cell(by_version: dict[int, list[Verdict]], reasons: _Reasons) -> str:
    states = {version: _state(verdicts) for version, verdicts in by_version.items() if verdicts}
    told = {
        version: f"{states[version]}{reasons.mark(_told(by_version[version]))}"
        for version in states
    }
    if len(set(states.values())) == 1:
        return next(iter(told.values()))
    return ", ".join(f"{_short(version)}: {state}" for version, state in told.items())


def _state(verdicts: Sequence[Verdict]) -> str:
    accepted = {verdict.direction for verdict in verdicts if not verdict.ours}
    if len(accepted) == len(verdicts):
        return "yes"
    return "forward" if Direction.FORWARD in accepted else "no"


def _told(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Reasons, each once: those of the forward pass hold for both."""
    for verdict in verdicts:
        yield from verdict.ours


def _model(device: DeviceSpec) -> str:
    """NVIDIA A100-SXM4-80GB -> A100."""
    words = device.name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return words.split("-", maxsplit=1)[0]


def _short(version: int) -> str:
    return ".".join(format_version(version).split(".")[:2])


def _escaped(words: str) -> str:
    return words.replace("|", "\\|").replace("*", "\\*")


# ---------------------------------------------------------------------------- known faults


def _faults(answers: Sequence[Answers]) -> Iterator[str]:
    yield "## Faults of cuDNN"
    yield ""
    yield (
        "What cuDNN builds, and gets wrong. `refuse`: such a problem is refused whatever cuDNN "
        "says; the others are run, with the remedy."
    )
    yield ""
    yield "| fault | cuDNN | remedy | source | decides here |"
    yield "|---|---|---|---|---|"
    for row in ROWS:
        decided = {
            verdict.name
            for one in answers
            for verdict in one.verdicts
            if row.name in verdict.faults and verdict.words is None
        }
        cells = (row.name, _versions(row), str(row.remedy), row.source, "; ".join(sorted(decided)))
        yield "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _versions(row: KnownBad) -> str:
    first = f"from {format_version(row.first)}" if row.first else ""
    last = f"before {format_version(row.fixed)}" if row.fixed else ""
    return " ".join(part for part in (first, last) if part) or "all"


def _frontends(answers: Sequence[Answers]) -> Iterator[str]:
    """Graphs that one frontend has cuDNN build and another refuses."""
    built: dict[tuple[int, str, str, Direction], dict[str, bool]] = {}
    for one in answers:
        for verdict in one.verdicts:
            key = (one.versions.cudnn, verdict.name, verdict.device, verdict.direction)
            built.setdefault(key, {})[one.versions.frontend] = verdict.words is None
    yield "## Versions of the frontend"
    yield ""
    found = sorted(
        {_difference(*key[:2], of) for key, of in built.items() if len({*of.values()}) > 1}
    )
    if not found:
        yield "No verdict depends on the version of the frontend."
        return
    yield "Verdicts that depend on the version of the frontend; a fault above decides them:"
    yield ""
    yield from (f"- {line}" for line in found)


def _difference(cudnn: int, name: str, of: dict[str, bool]) -> str:
    words = ", ".join(f"{version} {'builds' if yes else 'refuses'}" for version, yes in of.items())
    return f"{name}, cuDNN {format_version(cudnn)}: {words}"
