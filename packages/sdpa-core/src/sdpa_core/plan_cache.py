"""Plans in memory: bounded, least recently used first out, each built once."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Generic, TypeVar

V = TypeVar("V")


class PlanCache(Generic[V]):
    """A mapping whose missing values are built by whoever asks first.

    Threads that ask for the same key while it is being built wait for that one build; the lock is
    never held while building. A build that raises is not kept: the waiting threads get the same
    exception, the next one tries again. After a KeyboardInterrupt one that waits builds instead.

    Attributes:
        counters: ``hit``, ``miss``, ``wait``, ``failure`` and ``eviction`` so far.
    """

    def __init__(self, maxsize: int = 1024) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize = {maxsize}; expected at least 1")
        self.counters: Counter[str] = Counter()
        self._maxsize = maxsize
        self._lock = threading.Lock()
        self._ready: OrderedDict[Hashable, V] = OrderedDict()
        self._building: dict[Hashable, Future[V]] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._ready)

    def get(self, key: Hashable, build: Callable[[], V]) -> V:
        """The value of ``key``, built with ``build()`` if it is not there."""
        while True:
            with self._lock:
                if key in self._ready:
                    self.counters["hit"] += 1
                    self._ready.move_to_end(key)
                    return self._ready[key]
                pending = self._building.get(key)
                if pending is None:
                    self.counters["miss"] += 1
                    pending = self._building[key] = Future()
                    break
                self.counters["wait"] += 1
            with contextlib.suppress(CancelledError):
                return pending.result()
        return self._build(key, build, pending)

    def _build(self, key: Hashable, build: Callable[[], V], pending: Future[V]) -> V:
        try:
            value = build()
        except BaseException as error:
            with self._lock:
                self.counters["failure"] += 1
                self._building.pop(key, None)
            if isinstance(error, Exception):
                pending.set_exception(error)
            else:
                pending.cancel()
            raise
        with self._lock:
            self._building.pop(key, None)
            self._ready[key] = value
            while len(self._ready) > self._maxsize:
                self._ready.popitem(last=False)
                self.counters["eviction"] += 1
        pending.set_result(value)
        return value

    def clear(self) -> None:
        """Forget every finished value; builds under way are kept by those who wait for them."""
        with self._lock:
            self._ready.clear()
