"""Words for people: reports, refusals, and the warning that a slow path was taken."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .backend import Answer
from .device import DeviceSpec
from .errors import SlowAttentionWarning
from .problem import AttentionProblem
from .reasons import Verdict
from .words import features, notes, tensors

if TYPE_CHECKING:
    from .policy import Choice, Decision


def problem_lines(problem: AttentionProblem) -> Iterator[str]:
    """The tensors as a table, then every feature that was asked for."""
    rows = [
        (seen.name, str(list(seen.spec.shape)), str(list(seen.spec.strides)), seen.spec.dtype)
        + ((seen.remark,) if seen.remark else ())
        for seen in tensors(problem)
    ]
    yield from aligned([("tensor", "shape", "strides", "dtype"), *rows])
    # The mask and whether gradients follow are always told.
    told = {"band": str(problem.band), "training": "no", **features(problem)}
    yield from aligned((_LABELS.get(name, name), text) for name, text in told.items())


#: What callers call a field of the problem, where that is not its name.
_LABELS = {"band": "mask", "bias_grad": "gradient of bias", "sink_grad": "gradient of sink"}


def aligned(rows: Iterable[Sequence[str]], indent: str = "  ") -> Iterator[str]:
    """Rows of cells as lines of aligned columns."""
    rows = list(rows)
    count = max((len(row) for row in rows), default=0)
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(count)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        yield indent + "  ".join(cells).rstrip()


def choice_lines(
    problem: AttentionProblem, device: DeviceSpec, choices: Sequence[Choice]
) -> Iterator[str]:
    """A decision as a report: what was asked, who runs it, who does not and why."""
    yield f"attention on {device}"
    yield from problem_lines(problem)
    for choice in choices:
        yield f"{choice.direction}: {_chosen(choice)}"
        for name, answer in choice.rejected:
            yield from _refusal_lines(name, answer)
            if fixes := _fixes([answer]):
                yield f"    to change: {'; '.join(fixes)}"
    told = costs(problem, device, choices)
    if told:
        yield "notes:"
        yield from (f"  {note}" for note in told)


def costs(
    problem: AttentionProblem, device: DeviceSpec, choices: Sequence[Choice]
) -> tuple[str, ...]:
    """The notes on the directions that cuDNN runs."""
    directions = [choice.direction for choice in choices if choice.backend == "cudnn"]
    return notes(problem, device, directions) if directions else ()


def _chosen(choice: Choice) -> str:
    if choice.backend is None or choice.answer is None:
        return "no backend"
    answer = choice.answer
    if answer.verdict is Verdict.NOT_ASKED:
        return f"{choice.backend} (passes the rules; the library was not asked)"
    workspace = answer.workspace_bytes
    size = f"; workspace {workspace:,} bytes" if workspace else ""
    return f"{choice.backend} ({answer.verdict} by {answer.tier}{size})"


def _refusal_lines(name: str, answer: Answer) -> Iterator[str]:
    yield f"  {name}: {answer.verdict} by {answer.tier}"
    for reason in answer.reasons:
        yield f"    {replace(reason, hint='')}"


def _fixes(answers: Iterable[Answer]) -> list[str]:
    hints = (reason.hint for answer in answers for reason in answer.reasons)
    return list(dict.fromkeys(hint for hint in hints if hint))


def no_backend_message(
    problem: AttentionProblem, device: DeviceSpec, choices: Sequence[Choice]
) -> str:
    """The text of ``NoBackendError``: tensors, a block per backend, what to change."""
    lines = [f"no backend supports this attention problem on {device}", *problem_lines(problem)]
    refused: list[Answer] = []
    for choice in choices:
        if choice.backend is not None:
            continue
        lines.append(f"{choice.direction}:")
        for name, answer in choice.rejected:
            lines.extend(_refusal_lines(name, answer))
            refused.append(answer)
    lines.append("To change: " + "; ".join((*_fixes(refused), _REFERENCE_HINT)) + ".")
    return "\n".join(lines)


_REFERENCE_HINT = "the backend 'reference' runs any problem, slowly"

_warned: set[object] = set()
_warned_lock = threading.Lock()


def warn_if_slow(decision: Decision) -> None:
    """Warn, once per cause and device, that an accelerator runs the reference backend.

    The warning points at the first caller outside of this package, its adapters and frameworks.
    """
    if decision.device.platform == "cpu":
        return
    slow = [c for c in decision.choices if c.backend == "reference" and c.rejected]
    if not slow:
        return
    key = (decision.device, _causes(slow))
    with _warned_lock:
        if key in _warned:
            return
        _warned.add(key)
    warnings.warn(
        f"{decision}\nThe reference backend is slow. SDPA_FALLBACK=error turns this into an "
        f"error, SDPA_FALLBACK=allow silences it.",
        SlowAttentionWarning,
        stacklevel=_level_outside(),
    )


def _causes(choices: Sequence[Choice]) -> frozenset[tuple[object, ...]]:
    """What stood against the faster backends, without the values that vary from call to call."""
    return frozenset(
        (choice.direction, name, reason.what, reason.need)
        for choice in choices
        for name, answer in choice.rejected
        for reason in answer.reasons
    )


#: Packages whose frames are skipped to find the caller: ours, and those that call back into us.
_SKIPPED = frozenset(
    (__name__.partition(".")[0], "sdpa_torch", "sdpa_jax", "torch", "jax", "jaxlib", "contextlib")
)


def _level_outside() -> int:
    """``stacklevel`` of the caller's code, for a warning issued by the calling function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _SKIPPED:
        level, frame = level + 1, frame.f_back
    return level
