from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sdpa_core.plan_cache import PlanCache


def test_a_value_is_built_once() -> None:
    cache: PlanCache[int] = PlanCache()
    built = []
    for _ in range(3):
        assert cache.get("key", lambda: built.append(1) or 7) == 7
    assert built == [1]
    assert cache.counters == {"miss": 1, "hit": 2}


def test_sixteen_threads_build_once_and_the_lock_is_free_meanwhile() -> None:
    cache: PlanCache[int] = PlanCache()
    barrier, release = threading.Barrier(16), threading.Event()
    built = []

    def build() -> int:
        built.append(1)
        release.wait(10)
        return 7

    def ask() -> int:
        barrier.wait()
        return cache.get("slow", build)

    with ThreadPoolExecutor(17) as pool:
        answers = [pool.submit(ask) for _ in range(16)]
        # Another key is served while the first one is being built.
        assert pool.submit(cache.get, "other", lambda: 1).result(10) == 1
        release.set()
        assert [answer.result(10) for answer in answers] == [7] * 16
    assert built == [1]


def test_a_failed_build_reaches_the_waiting_and_is_tried_again() -> None:
    cache: PlanCache[int] = PlanCache()
    started, release = threading.Event(), threading.Event()

    def fail() -> int:
        started.set()
        release.wait(10)
        raise RuntimeError("first")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "key", fail)
        started.wait(10)
        second = pool.submit(cache.get, "key", lambda: 1)
        while not cache.counters["wait"]:
            pass
        release.set()
        for answer in (first, second):
            with pytest.raises(RuntimeError, match="first"):
                answer.result(10)
    assert cache.get("key", lambda: 2) == 2
    assert cache.counters["failure"] == 1


def test_an_interrupted_build_is_taken_over_by_who_waits() -> None:
    cache: PlanCache[int] = PlanCache()
    started, release = threading.Event(), threading.Event()

    def interrupted() -> int:
        started.set()
        release.wait(10)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, "key", interrupted)
        started.wait(10)
        second = pool.submit(cache.get, "key", lambda: 7)
        while not cache.counters["wait"]:
            pass
        release.set()
        with pytest.raises(KeyboardInterrupt):
            first.result(10)
        assert second.result(10) == 7


def test_the_least_recently_used_goes_first() -> None:
    cache: PlanCache[str] = PlanCache(maxsize=2)
    for key in ("a", "b", "a", "c"):
        cache.get(key, lambda key=key: key)
    assert len(cache) == 2
    assert cache.counters["eviction"] == 1
    assert cache.get("a", lambda: "rebuilt") == "a"
    assert cache.get("b", lambda: "rebuilt") == "rebuilt"


def test_clear_and_limits() -> None:
    cache: PlanCache[int] = PlanCache()
    cache.get("key", lambda: 1)
    cache.clear()
    assert len(cache) == 0
    with pytest.raises(ValueError, match="maxsize = 0"):
        PlanCache(maxsize=0)
