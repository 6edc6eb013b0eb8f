"""The command line: ``python -m bench.executor --out executor.json``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .. import machine
from ..report import plain
from . import cold, jax_tiny, memory, overhead, threads
from .figures import HEAD, CannotRunError, Report
from .isolation import Outcome, run_apart

FORMAT = 1

_Part = Callable[[argparse.Namespace], Report]

PARTS: dict[str, _Part] = {
    "overhead": lambda given: overhead.run(given.native, frontend_cpp=given.frontend_cpp),
    "jax_tiny": lambda _: jax_tiny.run(),
    "cold": lambda given: cold.run(repetitions=given.repetitions),
    "memory": lambda _: memory.run(),
    "threads": lambda _: threads.run(),
}
_MACHINE = "machine"

#: Nothing is timed in these, so they may run side by side.
UNTIMED = (_MACHINE, "memory", "threads")

_DESCRIPTION = "Ratios of the executor and the plan store, all measured in one run."


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m bench.executor", description=_DESCRIPTION)
    made.add_argument("--out", type=Path, help="JSON file with every sample")
    made.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    made.add_argument(
        "--native", type=Path, help="folder of the compiled C++ loops; compiled if they are missing"
    )
    made.add_argument(
        "--frontend-cpp",
        action="store_true",
        help="measure the C++ execute of cuDNN's frontend too, which takes a minute to compile",
    )
    made.add_argument(
        "--repetitions", type=int, default=cold.REPETITIONS, help="of the cold processes"
    )
    made.add_argument("--apart", nargs=2, metavar=("PART", "FILE"), help=argparse.SUPPRESS)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write, print; 1 if a part could not run or found something wrong."""
    argv = sys.argv[1:] if argv is None else list(argv)
    given = parser().parse_args(argv)
    if given.apart:
        return _apart(given)
    if given.out is None:
        parser().error("the following arguments are required: --out")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sdpa-bench-native-") as folder:
        options = ["--native", str(given.native or folder), "--repetitions", str(given.repetitions)]
        options += ["--frontend-cpp"] * given.frontend_cpp
        done: dict[str, Outcome] = {}
        for outcome in _outcomes(given.parts, options):
            done[outcome.part] = outcome
            _progress(time.perf_counter() - start, outcome)
            _write(given.out, _content(done, argv))
    found = [done[part] for part in given.parts]
    print(table(found))
    for text in notes(found):
        print(text)
    return 0 if all(outcome.ok for outcome in found) else 1


def _outcomes(parts: Sequence[str], options: Sequence[str]) -> Iterator[Outcome]:
    """Of every part as it ends: first, together, those that time nothing."""
    together = [part for part in (_MACHINE, *parts) if part in UNTIMED]
    with ThreadPoolExecutor(len(together)) as pool:
        yield from pool.map(lambda part: run_apart(part, options), together)
    for part in parts:
        if part not in UNTIMED:
            yield run_apart(part, options)


def _apart(given: argparse.Namespace) -> int:
    """One part, here; its report goes to a file."""
    part, path = given.apart
    try:
        report = Report(data=machine.describe()) if part == _MACHINE else PARTS[part](given)
    except CannotRunError as error:
        _write(Path(path), {"reason": str(error)})
        return 1
    _write(Path(path), report.to_json())
    return 0


def _content(done: dict[str, Outcome], argv: Sequence[str]) -> dict[str, Any]:
    described = done.get(_MACHINE)
    report = described.report if described else None
    return {
        "format": FORMAT,
        "command": " ".join(["python -m bench.executor", *argv]),
        "machine": report.data if report else None,
        "parts": {name: outcome.to_json() for name, outcome in done.items() if name != _MACHINE},
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)


def table(outcomes: Sequence[Outcome]) -> str:
    """All figures of all parts, as text."""
    lines = [
        figure.line(outcome.part)
        for outcome in outcomes
        if outcome.report is not None
        for figure in outcome.report.figures
    ]
    return plain("Executor and plan store", HEAD, lines) if lines else ""


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Parts that did not run, and what was found wrong."""
    found = []
    for outcome in outcomes:
        if outcome.report is None:
            found.append(f"part {outcome.part!r} did not run: {outcome.reason}")
        else:
            found += [f"wrong: {outcome.part}: {fault}" for fault in outcome.report.faults]
    return found


def _progress(seconds: float, outcome: Outcome) -> None:
    state = "ok" if outcome.ok else "not ok"
    print(f"{seconds:6.1f} s  {outcome.part}: {state}, {outcome.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
