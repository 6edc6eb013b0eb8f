"""Running a part in a process of its own: what it raises, or a crash, is that part's result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .figures import Report

#: Longest time of one part.
SECONDS = 150.0

_MODULE = (sys.executable, "-m", "bench.executor")


@dataclass(frozen=True)
class Outcome:
    """A part's report, or why there is none."""

    part: str
    seconds: float
    report: Report | None
    reason: str = ""

    @property
    def ok(self) -> bool:
        return self.report is not None and not self.report.faults

    def to_json(self) -> dict[str, Any]:
        result = {"reason": self.reason} if self.report is None else self.report.to_json()
        return {"seconds": round(self.seconds, 2), **result}


def run_apart(
    part: str,
    options: Sequence[str] = (),
    command: Sequence[str] = _MODULE,
    limit: float = SECONDS,
) -> Outcome:
    """Run ``command --apart PART FILE`` and read what it left in the file."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sdpa-bench-") as folder:
        result, log = Path(folder, "result.json"), Path(folder, "log")
        with log.open("w") as file:
            # A session of its own, so that the processes that it starts end with it.
            running = subprocess.Popen(
                [*command, "--apart", part, str(result), *options],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | _ENVIRONMENT,
                start_new_session=True,
            )
            reason = _ended(running, limit)
        seconds = time.perf_counter() - start
        saved = json.loads(result.read_text()) if result.exists() else {}
        if "reason" in saved:
            return Outcome(part, seconds, None, saved["reason"])
        if reason or not saved:
            lines = log.read_text(errors="replace").strip().splitlines()
            told = f"{reason or 'no result'}: {lines[-1] if lines else 'no output'}"
            return Outcome(part, seconds, None, told)
        return Outcome(part, seconds, Report.from_json(saved))


#: torch and JAX share the device's memory; plans are those that this process builds.
_ENVIRONMENT = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "SDPA_PLAN_STORE": "off",
    "SDPA_PLAN_PACKS": "",
}


def _ended(running: subprocess.Popen[bytes], limit: float) -> str:
    """Wait; how it ended, if not well."""
    try:
        status = running.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        return f"it took longer than {limit:.0f} s"
    if status < 0:
        return f"it was ended by {signal.Signals(-status).name}"
    return f"exit status {status}" if status else ""
