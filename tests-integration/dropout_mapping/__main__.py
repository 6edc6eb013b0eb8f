"""The command line: ``python -m dropout_mapping``."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import cudnn

from .answers import answer, dry_answer, dry_target
from .execution import Runner
from .questions import questions


def show(label: str, result: dict[str, Any], seconds: float) -> None:
    shown = ", ".join(f"{name} = {value}" for name, value in result.items())
    print(f"{seconds:6.1f} s  {label:<48} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dropout_mapping", description="Find out cuDNN's mapping of dropout bits."
    )
    parser.add_argument("out", nargs="?", default=os.environ.get("OUT", "."), type=Path)
    parser.add_argument("--dry-run", action="store_true", help="build the graphs, run nothing")
    parser.add_argument("--only", default="", help="first letters of questions: a,c,d")
    parser.add_argument("--seconds", type=float, default=110, help="start no question later")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "dropout_mapping.json"
    only = tuple(arguments.only.split(","))
    begin = time.monotonic()
    results: dict[str, dict[str, Any]] = {
        "versions": {"cudnn": cudnn.backend_version(), "frontend": cudnn.__version__}
    }
    runner = None if arguments.dry_run else Runner()
    target = dry_target() if arguments.dry_run else {}
    for question in questions():
        if not question.name.startswith(only):
            continue
        late = time.monotonic() - begin > arguments.seconds
        if late:
            results[question.name] = {"error": "left out: out of time"}
            file.write_text(json.dumps(results, indent=1) + "\n")
            show(question.name, results[question.name], time.monotonic() - begin)
            continue
        found = answer(runner, question) if runner else dry_answer(target, question)
        for label, result in found:
            results[label] = result
            file.write_text(json.dumps(results, indent=1) + "\n")
            show(label, result, time.monotonic() - begin)


if __name__ == "__main__":
    main()
