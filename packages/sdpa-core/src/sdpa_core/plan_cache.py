"""Plans in memory: bounded, least recently used first out, each built once."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, Protocol, TypeVar

from .events import EACH_CALL, Event, logger, stages, tell, wanted

V = TypeVar("V")


class Below(Protocol[V]):
    """A slower place than memory, for one key: asked before a build, handed what was built."""

    def load(self) -> V | None: ...

    def save(self, value: V) -> V:
        """Keep a value; the one to use, which may be another process's."""
        ...


class PlanCache(Generic[V]):
    """A mapping whose missing values are built by whoever asks first.

    Threads that ask for the same key while it is being built wait for that one build; the lock is
    never held while building. A build that raises is not kept: the waiting threads get the same
    exception, the next one tries again. After a KeyboardInterrupt one that waits builds instead.
    A child process of ``os.fork`` has the values, and none of the builds under way.

    Attributes:
        counters: ``hit``, ``miss``, ``wait``, ``build``, ``failure`` and ``eviction`` so far, and
            what else was ``count``-ed. A miss is followed by a build unless the place below had it.
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
        _alive.add(self)

    def __len__(self) -> int:
        with self._lock:
            return len(self._ready)

    def get(
        self,
        key: Hashable,
        build: Callable[[], V],
        label: Callable[[], str] = str,
        below: Below[V] | None = None,
    ) -> V:
        """The value of ``key``, built with ``build()`` if it is not there.

        Args:
            label: gives what the value is for, in a few words; called only if events are wanted.
            below: where to look before building.
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
                return self._build(key, build, label, below, pending)
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
        below: Below[V] | None,
        pending: Future[V],
    ) -> V:
        start = time.perf_counter()
        with stages.recorded() as seconds:
            try:
                _tell("miss", key, label)
                found = None if below is None else below.load()
                if found is None:
                    value = build() if below is None else below.save(build())
                else:
                    value = found
            except BaseException as error:
                self._failed(key, error, pending)
                _tell("failure", key, label, start, seconds, error)
                raise
        if found is None:
            self.count("build")
        evicted = self._keep(key, value, seconds)
        pending.set_result(value)
        if found is None:
            _tell("build", key, label, start, seconds)
        for other in evicted:
            _tell("eviction", other)
        return value

    def count(self, kind: str) -> None:
        """Count something that happened to a value on its way here."""
        with self._lock:
            self.counters[kind] += 1

    def _keep(self, key: Hashable, value: V, seconds: Mapping[str, float]) -> list[Hashable]:
        """Keep a value; the keys that had to go for it."""
        evicted = []
        with self._lock:
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

    def discard(self, key: Hashable, value: V) -> None:
        """Forget the value of a key, if it is this very one."""
        with self._lock:
            if self._ready.get(key) is value:
                del self._ready[key]

    def after_fork(self) -> None:
        """In a child process: nobody holds the lock, and nobody builds."""
        self._lock = threading.Lock()
        self._building.clear()

    def clear(self) -> None:
        """Forget every finished value; builds under way are kept by those who wait for them."""
        with self._lock:
            self._ready.clear()


_alive: weakref.WeakSet[PlanCache[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for cache in _alive:
        cache.after_fork()


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(after_in_child=_after_fork)


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
