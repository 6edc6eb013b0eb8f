"""What was found, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import cudnn

from sdpa_core.device import format_version

from .fault import Fault, Finding, Outcome, State
from .machine import Machine


@dataclass(frozen=True)
class Versions:
    """Of what was asked."""

    cudnn: str
    frontend: str
    gpu: str

    def __str__(self) -> str:
        return f"cuDNN {self.cudnn}, cudnn-frontend {self.frontend}, {self.gpu}"


def versions(machine: Machine) -> Versions:
    return Versions(
        format_version(int(cudnn.backend_version())), str(cudnn.__version__), machine.name
    )


Found = Sequence[tuple[Fault, Finding]]
_HEAD = ("fault", "held by", "cuDNN", "wrong", "remedy", "wrong with it")


def as_json(of: Versions, found: Found) -> str:
    """``{"versions": {...}, "faults": [{"fault": ..., "state": ..., "figure": ...}, ...]}``.

    ``remedied`` is what becomes of the fault with the library's remedy, null where that is to
    refuse the problem.
    """
    faults = [
        {
            "fault": fault.name,
            "held": fault.held,
            **asdict(finding.as_it_is),
            "remedy": fault.remedy,
            "remedied": finding.remedied and asdict(finding.remedied),
        }
        for fault, finding in found
    ]
    return json.dumps({"versions": asdict(of), "faults": faults}, indent=1)


def print_table(of: Versions, found: Found) -> None:
    """With rich where it is installed; a paragraph for each fault elsewhere."""
    lines = [_line(fault, finding) for fault, finding in found]
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        paragraphs = (
            "\n".join(f"{head:>14}: {cell}" for head, cell in zip(_HEAD, line, strict=True))
            for line in lines
        )
        print(f"{of}\n\n" + "\n\n".join(paragraphs))
        return
    table = Table(title=str(of), title_justify="left", show_lines=True)
    for head in _HEAD:
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(*map(escape, line))
    Console(width=180, highlight=False).print(table)


def _line(fault: Fault, finding: Finding) -> tuple[str, ...]:
    before, after = finding.as_it_is, finding.remedied
    remedied = "-" if after is None else _told(after)
    return fault.name, fault.held, before.state, before.figure, fault.remedy or "refuse", remedied


def _told(outcome: Outcome) -> str:
    """Figures speak for themselves; of what has none, what became of it."""
    measured = outcome.state in {State.PRESENT, State.GONE}
    return outcome.figure if measured else f"{outcome.state}: {outcome.figure}"
