"""``plans clear``."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from ..command import Command
from . import places, words

_DAY = 86_400.0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=_days, metavar="DAYS", help="only those not used for so many days"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < float("inf"):
        raise ArgumentTypeError(f"{text!r}; expected a number of days")
    return days


def _run(given: Namespace) -> int:
    folder, now = places.users_folder(), time.time()
    age = 0.0 if given.older_than is None else given.older_than * _DAY
    entries = [entry for entry in folder.entries() if entry.is_plan or entry.is_stale(now)]
    entries = [entry for entry in entries if given.older_than is None or now - entry.used > age]
    what = f"{words.count(len(entries), 'file')}, {words.size(sum(e.bytes for e in entries))}"
    if entries and not given.yes and not _agreed(f"remove {what}, from {folder.path}?"):
        sys.stdout.write("nothing was removed\n")
        return 0
    removed = sum(folder.delete(entry) for entry in entries)
    sys.stdout.write(f"removed {words.count(removed, 'file')} from {folder.path}\n")
    return 0


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ValueError(f"{question} Nobody can answer here; give --yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


CLEAR = Command(
    name="clear",
    summary="Remove plans from the user's folder.",
    add_arguments=_add_arguments,
    run=_run,
    epilog="Processes that use a plan have it in memory. Packs are never changed.",
)
