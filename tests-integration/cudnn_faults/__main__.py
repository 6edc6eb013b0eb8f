"""The command line: ``python -m cudnn_faults``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from . import report
from .fault import Finding, State, found
from .kinds import FAULTS
from .machine import Absent, Gpu, Machine


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cudnn_faults",
        description="Show which faults of cuDNN are there, with the installed cuDNN on this GPU.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="TEXT", help="faults whose names contain it"
    )
    parser.add_argument(
        "--dry-run",
        metavar="DEVICE",
        nargs="?",
        const="h200",
        help="build every graph for a GPU that need not be there (h200), run nothing",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """1 if something could not be found out, 2 if there is no such fault."""
    given = arguments_of(argv)
    machine: Machine = Absent(given.dry_run) if given.dry_run else Gpu()
    chosen = [fault for fault in FAULTS if any(text in fault.name for text in given.only or [""])]
    if not chosen:
        print(f"no fault's name contains {' or '.join(given.only)}", file=sys.stderr)
        return 2
    results = []
    for fault in sorted(chosen, key=lambda fault: fault.breaks_cuda):  # these last
        start = time.perf_counter()
        results.append((fault, found(fault, machine)))
        seconds = time.perf_counter() - start
        print(f"{seconds:5.1f} s  {fault.name}", file=sys.stderr, flush=True)
    of = report.versions(machine)
    if given.json:
        print(report.as_json(of, results))
    else:
        report.print_table(of, results)
    return int(any(State.FAILED in _states(finding) for _, finding in results))


def _states(finding: Finding) -> set[State]:
    return {one.state for one in (finding.as_it_is, finding.remedied) if one is not None}


if __name__ == "__main__":
    sys.exit(main())
