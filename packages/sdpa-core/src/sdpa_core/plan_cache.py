"""Plans in memory: bounded, least recently used first out, each built once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar

from .events import EACH_CALL, Event, logger, stages, tell, wanted

V = TypeVar("V")


class PlanCache(Generic[V]):
    """A mapping whose missing values are built by whoever asks first.

    Threads that ask for the same key while it is being built wait for that one build; the lock is
    never held while building. A build that raises is not kept: the waiting threads get the same
    exception, the next one tries again. After a KeyboardInterrupt one that waits builds instead.

    Attributes:
        counters: ``hit``, ``miss``, ``wait``, ``build``, ``failure`` and ``eviction`` so far.
        seconds: time spent in each stage of all builds so far (``events.stages``).
    """

    def __init__(self, maxsize: int = 1024) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize = {maxsize}; expected at least 1")
        self.counters: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._maxsize = maxsize
        self._lock = threading.Lock()
        self._ready: OrderedDict[Hashable, V] = OrderedDict()
        self._building: dict[Hashable, Future[V]] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._ready)

    def get(self, key: Hashable, build: Callable[[], V], label: Callable[[], str] = str) -> V:
        """The value of ``key``, built with ``build()`` if it is not there.

        Args:
            label: gives what the value is for, in a few words; called only if events are wanted.
        """
        while True:
            with self._lock:
                if key in self._ready:
                    self.counters["hit"] += 1
                    self._ready.move_to_end(key)
                    value = self._ready[key]
                    break
                pending = self._building.get(key)
                builds = pending is None
                if pending is None:
                    pending = self._building[key] = Future()
                self.counters["miss" if builds else "wait"] += 1
            if builds:
                return self._build(key, build, label, pending)
            _tell("wait", key, label)
            with contextlib.suppress(CancelledError):
                return pending.result()
        if logger().isEnabledFor(EACH_CALL):
            _tell("hit", key, label)
        return value

    def _build(
        self,
        key: Hashable,
        build: Callable[[], V],
        label: Callable[[], str],
        pending: Future[V],
    ) -> V:
        start = time.perf_counter()
        with stages.recorded() as seconds:
            try:
                _tell("miss", key, label)
                value = build()
            except BaseException as error:
                self._failed(key, error, pending)
                _tell("failure", key, label, start, seconds, error)
                raise
        evicted = self._built(key, value, seconds)
        pending.set_result(value)
        _tell("build", key, label, start, seconds)
        for other in evicted:
            _tell("eviction", other)
        return value

    def _built(self, key: Hashable, value: V, seconds: Mapping[str, float]) -> list[Hashable]:
        """Keep a value; the keys that had to go for it."""
        evicted = []
        with self._lock:
            self.counters["build"] += 1
            for stage, spent in seconds.items():
                self.seconds[stage] += spent
            self._building.pop(key, None)
            self._ready[key] = value
            while len(self._ready) > self._maxsize:
                evicted.append(self._ready.popitem(last=False)[0])
                self.counters["eviction"] += 1
        return evicted

    def _failed(self, key: Hashable, error: BaseException, pending: Future[V]) -> None:
        with self._lock:
            self.counters["failure"] += 1
            self._building.pop(key, None)
        if isinstance(error, Exception):
            pending.set_exception(error)
        else:
            pending.cancel()

    def clear(self) -> None:
        """Forget every finished value; builds under way are kept by those who wait for them."""
        with self._lock:
            self._ready.clear()


def _tell(
    kind: str,
    key: Hashable,
    label: Callable[[], str] = str,
    start: float | None = None,
    seconds: Mapping[str, float] | None = None,
    error: BaseException | None = None,
) -> None:
    """An event, if anybody listens. Never called with the lock held: listeners take their time."""
    if wanted(kind):
        spent = None if start is None else time.perf_counter() - start
        tell(Event(kind, str(key), label(), spent, dict(seconds or {}), error))
