"""The command line: ``python -m bench --out bench.json``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from . import suites
from .compare import Comparison
from .report import print_tables
from .results import write_bench
from .rows import ROWS, chosen
from .timing import Plan


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON file with every sample")
    parser.add_argument(
        "--rows",
        nargs="*",
        default=[],
        metavar="TEXT",
        help=f"only rows whose names contain it; there are {' '.join(row.name for row in ROWS)}",
    )
    parser.add_argument("--suites", nargs="*", default=list(suites.SUITES), choices=suites.SUITES)
    parser.add_argument("--rounds", type=int, default=Plan().rounds)
    parser.add_argument("--samples", type=int, default=Plan().samples, help="in each round")
    parser.add_argument(
        "--layout", default="bhsd", choices=("bhsd", "bshd"), help="of torch's operands in memory"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write, print; 1 if somebody computed something wrong or we did not run."""
    given = arguments_of(argv)
    plan = Plan(rounds=given.rounds, samples=given.samples)
    settings = suites.Settings(chosen(given.rows), plan, given.layout)
    kept = {"layout": given.layout, "dtype": "bfloat16", **asdict(plan)}
    done: list[Comparison] = []
    start = time.perf_counter()
    absent = []
    for name in given.suites:
        if reason := suites.SUBJECTS[name].unavailable():
            absent.append(f"suite {name!r} did not run: {reason}")
            continue
        for comparison in suites.run([name], settings):
            done.append(comparison)
            write_bench(given.out, kept, done)
            _progress(time.perf_counter() - start, comparison)
    print_tables(done)
    for text in absent:
        print(text)
    return 1 if absent or any(comparison.faults for comparison in done) else 0


def _progress(seconds: float, comparison: Comparison) -> None:
    ratio = f"{comparison.ratio:.3f}" if comparison.ratio is not None else "-"
    what = f"{comparison.framework} {comparison.what} {comparison.row}"
    print(f"{seconds:6.0f} s  {what}: ours / best = {ratio}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
