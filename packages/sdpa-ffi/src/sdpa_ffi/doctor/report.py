"""Findings as text for people, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from .checks import Finding, Level, is_usable


def as_text(findings: Sequence[Finding]) -> str:
    """One line a finding, then every problem with the command that mends it."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = [f"{finding.check:<{width}}  {finding.text}" for finding in findings]
    # What is broken comes first.
    problems = [
        finding
        for level in (Level.BROKEN, Level.WARNING)
        for finding in findings
        if finding.level is level
    ]
    if not problems:
        return "\n".join([*lines, "", "nothing is wrong"])
    told = [
        line
        for finding in problems
        for line in (f"  {finding.level}: {finding.text}", f"    to mend it: {finding.fix}")
    ]
    return "\n".join([*lines, "", "problems:", *told])


def as_json(findings: Sequence[Finding]) -> str:
    """An object: ``usable``, and ``findings``, each with check, level, text and fix."""
    found = {"usable": is_usable(findings), "findings": [asdict(one) for one in findings]}
    return json.dumps(found, indent=2)
