"""What ``plans build`` shows: a progress bar, and a table in the end. Needs the extra ``cli``."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from . import words
from .tasks import Kind, Outcome


class Report:
    """Shows outcomes.

    Raises:
        ValueError: ``rich`` or ``tqdm`` is not installed.
    """

    def __init__(self) -> None:
        self._progress: Any = _needed("tqdm").tqdm
        self._console: Any = _needed("rich.console").Console
        self._table: Any = _needed("rich.table").Table
        self._text: Any = _needed("rich.text").Text

    def progress(self, outcomes: Iterable[Outcome], total: int) -> Iterator[Outcome]:
        """The outcomes, with a bar on stderr if that is a terminal."""
        bar = self._progress(outcomes, total=total, unit="plan", disable=None, file=sys.stderr)
        yield from bar

    def summary(self, outcomes: Iterable[Outcome]) -> None:
        """A table on stdout: how many plans of each device, and why some are not there."""
        table = self._table(title="plans", title_justify="left")
        table.add_column("outcome", no_wrap=True)
        table.add_column("device", no_wrap=True)
        table.add_column("plans", justify="right", no_wrap=True)
        table.add_column("reasons, of one of them")
        for count, one in _groups(outcomes):
            # Text, which unlike a str has no markup: shapes are in brackets.
            cells = (str(one.kind), one.task.device.name, f"{count:,}", _told(one))
            table.add_row(*map(self._text, cells), style=_STYLES.get(one.kind))
        self._console().print(table)


_STYLES = {Kind.REFUSED: "yellow", Kind.FAILED: "red"}


def _groups(outcomes: Iterable[Outcome]) -> list[tuple[int, Outcome]]:
    """How many outcomes are alike but for numbers, and the first of them; in the order of kinds."""
    alike: dict[object, list[Outcome]] = {}
    for one in outcomes:
        reasons = tuple(re.sub(r"\d+", "0", reason) for reason in one.reasons)
        alike.setdefault((one.kind, one.task.device.name, reasons), []).append(one)
    groups = [(len(group), group[0]) for group in alike.values()]
    order = list(Kind)
    return sorted(groups, key=lambda group: (order.index(group[1].kind), group[1].task.device.name))


def _told(one: Outcome) -> str:
    """All reasons, and the problem, for what is not there."""
    if not one.reasons:
        return ""
    return "\n".join((*one.reasons, f"({one.task.where}: {one.task.label})"))


def said(outcomes: Iterable[Outcome]) -> str:
    """``3 plans built, 1 already there``."""
    counts = Counter(one.kind for one in outcomes)
    built, *others = Kind
    rest = (f"{counts[kind]:,} {kind}" for kind in others if counts[kind])
    return ", ".join((f"{words.count(counts[built])} {built}", *rest))


def _needed(module: str) -> Any:
    """A module of the extra; by name, so that neither is needed to check types."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(
            f"plans build needs rich and tqdm ({error}); install them with: "
            f"pip install 'sdpa-core[cli]'"
        ) from error
