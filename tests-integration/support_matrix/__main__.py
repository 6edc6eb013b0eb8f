"""The command line: ``python -m support_matrix ask`` and ``python -m support_matrix page``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sdpa_core.cudnn import session

from . import page
from .answers import Versions, read, write
from .problems import PROBLEMS
from .verdicts import DEVICES, ask_all, questions


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support_matrix", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    asks = commands.add_parser("ask", help="ask the rules and the installed cuDNN")
    asks.add_argument("--out", type=Path, required=True, help="file of answers")
    asks.add_argument("--problems", nargs="*", default=[], metavar="TEXT", help="in the names")
    asks.add_argument("--devices", nargs="*", default=list(DEVICES), metavar="NAME")
    asks.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    pages = commands.add_parser("page", help="write the page from files of answers")
    pages.add_argument("answers", nargs="+", type=Path)
    pages.add_argument("--out", type=Path, required=True, help="docs/support-matrix.md")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """1 if the rules and cuDNN disagree about anything."""
    arguments = arguments_of(argv)
    return _ask(arguments) if arguments.command == "ask" else _page(arguments)


def _ask(arguments: argparse.Namespace) -> int:
    texts = arguments.problems
    names = [name for name in PROBLEMS if not texts or any(text in name for text in texts)]
    asked = list(questions(names, arguments.devices))
    versions = Versions(session.cudnn_version(), session.frontend_version())
    started, wrong = time.monotonic(), 0
    for verdict in write(arguments.out, versions, ask_all(asked, arguments.processes)):
        if not verdict.agree:
            wrong += 1
            print(verdict)
    took = time.monotonic() - started
    print(f"{versions}: {len(asked)} graphs in {took:.0f} s, {wrong} disagreements")
    return int(wrong > 0)


def _page(arguments: argparse.Namespace) -> int:
    answers = sorted((read(path) for path in arguments.answers), key=lambda one: one.versions)
    arguments.out.write_text(page.text(answers), encoding="utf-8")
    wrong = [str(verdict) for one in answers for verdict in one.disagreements]
    print("\n".join([*wrong, f"{len(wrong)} disagreements"]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
