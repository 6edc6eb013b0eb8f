"""What happens to plans, as events on the logger ``sdpa_core.plans``, and how long builds take.

``SDPA_LOG=plans`` writes them to stderr. A program that configures logging itself finds the same
records on that logger, and the ``Event`` as the record's ``msg``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache

from .config import settings

#: The level of what may happen at each call; what happens once for a plan is ``INFO``.
EACH_CALL = logging.DEBUG

LEVELS = {
    "hit": EACH_CALL,
    "wait": EACH_CALL,
    "miss": logging.INFO,
    "build": logging.INFO,
    "eviction": logging.INFO,
    "failure": logging.INFO,
    "store hit": logging.INFO,
    "store miss": logging.INFO,
    "store write": logging.INFO,
    "store eviction": logging.INFO,
    "store bad": logging.WARNING,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a key of the cache. Prints as a line for people.

    Attributes:
        kind: ``hit``, ``miss``, ``wait`` (for another thread's build), ``build``, ``eviction`` or
            ``failure``; of the store on disk: ``store hit``, ``store miss``, ``store write``,
            ``store eviction``, and ``store bad`` for what it cannot use or cannot do.
        key: the plan's key; empty if it is about a whole folder.
        label: what it is for, if the one who asked said so.
        seconds: how long the build, or reading or writing the store took; None for other kinds.
        stages: seconds of each stage of the build, in the order in which they began.
        error: why it failed.
        reason: of events of the store: which file, and what about it.
    """

    kind: str
    key: str
    label: str = ""
    seconds: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    error: BaseException | None = None
    reason: str = ""

    def __str__(self) -> str:
        text = f"{self.kind} {self.key[:12]}".rstrip()
        if self.seconds is not None:
            text += f" {_milliseconds(self.seconds)}"
        if self.stages:
            parts = (f"{name} {_milliseconds(spent)}" for name, spent in self.stages.items())
            text += f" ({', '.join(parts)})"
        if self.label:
            text += f" {self.label}"
        if self.reason:
            text += f": {self.reason}"
        return text if self.error is None else f"{text}: {type(self.error).__name__}: {self.error}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


@cache
def logger() -> logging.Logger:
    """The logger of plan events; with ``SDPA_LOG=plans`` it writes to stderr, and only there."""
    found = logging.getLogger(f"{__package__}.plans")
    if "plans" in settings().log:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        found.addHandler(handler)
        found.setLevel(logging.DEBUG)
        found.propagate = False
    return found


def wanted(kind: str) -> bool:
    """Whether anybody listens to events of a kind; nothing needs to be put in words otherwise."""
    return logger().isEnabledFor(LEVELS[kind])


def tell(event: Event) -> None:
    logger().log(LEVELS[event.kind], event)


class Stages:
    """Times the stages of a build, for whoever records them in this thread or task.

    ::

        with stages.recorded() as seconds:
            ...
            with stages("compile"):  # anywhere below, without being handed the record
                ...

    Stages of one name add up. A stage inside of another counts in both. Without a record nothing
    is timed.
    """

    def __init__(self) -> None:
        self._record: ContextVar[dict[str, float] | None] = ContextVar("stages", default=None)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        record = self._record.get()
        if record is None:
            yield
            return
        record.setdefault(name, 0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            record[name] += time.perf_counter() - start

    @contextmanager
    def recorded(self) -> Iterator[dict[str, float]]:
        """Seconds by stage; filled while the block runs, also if it raises."""
        record: dict[str, float] = {}
        token = self._record.set(record)
        try:
            yield record
        finally:
            self._record.reset(token)


#: The process's timer.
stages = Stages()
