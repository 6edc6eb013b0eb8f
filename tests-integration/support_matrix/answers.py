"""Verdicts in a file: one line of JSON each, after a line that says who was asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sdpa_core import Direction
from sdpa_core.device import format_version

from .verdicts import Verdict


@dataclass(frozen=True, slots=True, order=True)
class Versions:
    """The pair that was asked: a version of cuDNN as ``cudnnGetVersion()``, and a frontend's."""

    cudnn: int
    frontend: str

    def __str__(self) -> str:
        return f"cuDNN {format_version(self.cudnn)}, frontend {self.frontend}"


@dataclass(frozen=True, slots=True)
class Answers:
    versions: Versions
    verdicts: tuple[Verdict, ...]

    @property
    def disagreements(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.agree)


def write(path: Path, versions: Versions, verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Write verdicts as they come, and hand them on."""
    with path.open("w", encoding="utf-8") as file:
        print(json.dumps(asdict(versions)), file=file, flush=True)
        for verdict in verdicts:
            print(json.dumps(asdict(verdict)), file=file, flush=True)
            yield verdict


def read(path: Path) -> Answers:
    header, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return Answers(Versions(**header), tuple(_verdict(line) for line in lines))


def _verdict(fields: dict[str, object]) -> Verdict:
    name, device, direction, ours, words, faults = fields.values()
    return Verdict(name, device, Direction(direction), tuple(ours), words, tuple(faults))
