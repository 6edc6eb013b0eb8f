"""``python -m sdpa_ffi doctor``: what was found on this machine, and what to mend.

``machine`` looks at the machine, ``checks`` judges what it found and ``report`` prints it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .checks import examine, is_usable
from .machine import gather
from .report import as_json, as_text


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if plans can be made and run here, 1 if something is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m sdpa_ffi", description="The native executor of sdpa."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="Say what was found on this machine, and the command that mends what is wrong.",
        description="Imports no framework. The status is 1 if something is broken.",
    )
    doctor.add_argument("--json", action="store_true", help="for programs")
    given = parser.parse_args(arguments)
    findings = examine(gather())
    text = as_json(findings) if given.json else as_text(findings)
    sys.stdout.write(f"{text}\n")
    return 0 if is_usable(findings) else 1
