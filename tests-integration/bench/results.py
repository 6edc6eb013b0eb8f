"""Files of results: what a run writes, and the merge of its parts.

``python -m bench.results FOLDER --command TEXT`` makes ``FOLDER/results.json`` of
``FOLDER/machine.json`` and of ``tests.xml`` and ``bench.json``, as far as they are there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from .compare import Comparison

FORMAT = 1


def write_bench(path: Path, settings: dict[str, Any], comparisons: Sequence[Comparison]) -> None:
    """Replace the file by what has been measured so far."""
    content = {"settings": settings, "comparisons": [c.to_json() for c in comparisons]}
    _write(path, content)


def comparisons_of(results: dict[str, Any]) -> list[Comparison]:
    """What a file of results, or of the benchmark alone, holds."""
    bench = results.get("bench") or results
    return [Comparison.from_json(saved) for saved in bench.get("comparisons", ())]


def tests_of(junit: Path) -> dict[str, Any]:
    """Counts and names from pytest's XML report."""
    cases = list(ET.parse(junit).getroot().iter("testcase"))
    failed = [_name(case) for case in cases if _is(case, "failure", "error")]
    skipped = {_name(case): _reason(case) for case in cases if _is(case, "skipped")}
    return {
        "passed": len(cases) - len(failed) - len(skipped),
        "failed": failed,
        "skipped": skipped,
        "seconds": round(sum(float(case.get("time", 0)) for case in cases), 1),
    }


def _is(case: ET.Element, *kinds: str) -> bool:
    return any(case.find(kind) is not None for kind in kinds)


def _name(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _reason(case: ET.Element) -> str:
    skipped = case.find("skipped")
    return str(skipped.get("message", "")) if skipped is not None else ""


def merge(folder: Path, command: str) -> dict[str, Any]:
    """Everything a run left in its folder."""
    machine = folder / "machine.json"
    found: dict[str, Any] = {
        "format": FORMAT,
        "command": command,
        "machine": json.loads(machine.read_text()) if machine.exists() else None,
    }
    reports = sorted(folder.glob("tests*.xml"))
    if reports:
        found["tests"] = {
            report.stem: tests_of(report) for report in reports if report.stat().st_size
        }
    if (bench := folder / "bench.json").exists():
        found["bench"] = json.loads(bench.read_text())
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(content, indent=1) + "\n")
    partial.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--command", default="", help="how the run was started")
    given = parser.parse_args(arguments)
    _write(given.folder / "results.json", merge(given.folder, given.command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
