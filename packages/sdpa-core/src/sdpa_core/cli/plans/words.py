"""Plans in words and numbers, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ...device import format_version
from ...direction import Direction
from ...store import Inspected

SHORT = 12


def facts(found: Inspected) -> dict[str, object]:
    """All that a file of a store says; without what the plan says of itself if it is bad."""
    direction, problem = split_label(found.provenance.problem)
    told: dict[str, object] = {
        "fingerprint": found.key,
        "path": str(found.path),
        "bytes": found.bytes,
        "last_use": datetime.fromtimestamp(found.used, UTC).isoformat(timespec="seconds"),
        "direction": direction,
        "problem": problem,
        "built": found.provenance.built,
        "tool": found.provenance.tool,
    }
    if (header := found.header) is not None:
        told |= {
            "sm": header.sm,
            "sm_count": header.sm_count,
            "cudnn_version": format_version(header.cudnn_version),
            "frontend_version": format_version(header.frontend_version),
            "workspace_bytes": header.workspace_bytes,
            "operands": header.bindings,
            "engine": header.engine_name,
        }
    return {**told, "fault": found.fault}


def split_label(label: str) -> tuple[str, str]:
    """Direction and problem of ``words.summary``; of other labels no direction."""
    first, _, rest = label.partition(" ")
    return (first, rest) if first in set(Direction) else ("", label)


def aligned(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """Rows as lines of columns, all but the last one filled up; ``right`` are set to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def count(number: int, what: str = "plan") -> str:
    """``1 plan``, ``2 plans``."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def size(number: int) -> str:
    """``12 bytes``, ``3.4 MB``."""
    for unit, of in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= of:
            return f"{number / of:.1f} {unit}"
    return f"{number} bytes"
