from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sdpa_core import (
    AttentionProblem,
    Band,
    DeviceSpec,
    Direction,
    DType,
    TensorSpec,
    Verdict,
    decide,
)
from sdpa_core import events as plan_events
from sdpa_core.config import settings
from sdpa_core.cudnn import probe, session
from sdpa_core.events import Event, Stages, stages
from sdpa_core.plan_cache import PlanCache
from sdpa_core.problem import Softmax

MakeProblem = Callable[..., AttentionProblem]
H200 = DeviceSpec.named("h200", cudnn_version=92801)


def test_a_value_is_built_once() -> None:
    cache: PlanCache[int] = PlanCache()
    built = []
    for _ in range(3):
        assert cache.get("key", lambda: built.append(1) or 7) == 7
    assert built == [1]
    assert cache.counters == {"miss": 1, "build": 1, "hit": 2}


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


# ---------------------------------------------------------------------------------- stages


def test_stages_are_timed_for_whoever_records_them() -> None:
    timer = Stages()
    with timer("unrecorded"):
        pass
    with timer.recorded() as seconds:
        for name in ("lower", "compile", "lower"):
            with timer(name):
                pass
        with pytest.raises(RuntimeError), timer("serialize"):
            raise RuntimeError
    with timer("later"):
        pass
    assert list(seconds) == ["lower", "compile", "serialize"]
    assert all(spent >= 0 for spent in seconds.values())


def test_threads_do_not_see_each_others_stages() -> None:
    cache: PlanCache[int] = PlanCache()
    barrier = threading.Barrier(2)

    def build(name: str) -> int:
        barrier.wait(10)
        with stages(name):
            barrier.wait(10)
        return 1

    with ThreadPoolExecutor(2) as pool:
        for answer in [pool.submit(cache.get, n, lambda n=n: build(n)) for n in ("a", "b")]:
            assert answer.result(10) == 1
    assert set(cache.seconds) == {"a", "b"}


# ---------------------------------------------------------------------------------- events


class Listener(logging.Handler):
    """Keeps the events that it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(record.msg)  # type: ignore[arg-type]


@pytest.fixture
def listener() -> Iterator[Listener]:
    logger, found = logging.getLogger("sdpa_core.plans"), Listener()
    logger.addHandler(found)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.removeHandler(found)
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def nobody_listens() -> Iterator[None]:
    logger = logging.getLogger("sdpa_core.plans")
    logger.setLevel(logging.WARNING)
    yield
    logger.setLevel(logging.NOTSET)


def test_events(listener: Listener) -> None:
    cache: PlanCache[int] = PlanCache(maxsize=1)

    def build() -> int:
        with stages("compile"):
            return 1

    def fail() -> int:
        with stages("lower"):
            raise RuntimeError("no memory")

    cache.get("a", build, lambda: "forward")
    cache.get("a", build)
    cache.get("b", build)
    with pytest.raises(RuntimeError):
        cache.get("c", fail)
    kinds = [(event.kind, event.key) for event in listener.events]
    assert kinds == [
        ("miss", "a"),
        ("build", "a"),
        ("hit", "a"),
        ("miss", "b"),
        ("build", "b"),
        ("eviction", "a"),
        ("miss", "c"),
        ("failure", "c"),
    ]
    built, failed = listener.events[1], listener.events[-1]
    assert built.label == "forward"
    assert built.seconds is not None
    assert built.seconds >= built.stages["compile"]
    assert list(failed.stages) == ["lower"]
    assert str(failed).endswith("RuntimeError: no memory")


def test_a_thread_that_waits_is_an_event(listener: Listener) -> None:
    cache: PlanCache[int] = PlanCache()
    started, release = threading.Event(), threading.Event()

    def build() -> int:
        started.set()
        release.wait(10)
        return 1

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(cache.get, "key", build)]
        started.wait(10)
        answers.append(pool.submit(cache.get, "key", build))
        while not cache.counters["wait"]:
            pass
        release.set()
        assert [answer.result(10) for answer in answers] == [1, 1]
    assert sorted(event.kind for event in listener.events) == ["build", "miss", "wait"]


def test_an_event_is_a_line() -> None:
    event = Event("build", "0123456789abcdef", "forward", 0.0125, {"plan": 0.002, "compile": 0.01})
    assert str(event) == "build 0123456789ab 12.5 ms (plan 2.0 ms, compile 10.0 ms) forward"


@pytest.mark.usefixtures("nobody_listens")
def test_nothing_is_put_in_words_if_nobody_listens() -> None:
    cache: PlanCache[int] = PlanCache()

    def label() -> str:
        raise AssertionError

    for _ in range(2):
        assert cache.get("key", lambda: 1, label) == 1


def test_a_mistake_in_the_environment_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache: PlanCache[int] = PlanCache()
    monkeypatch.setenv("SDPA_LOG", "everything")
    settings.cache_clear()
    plan_events.logger.cache_clear()
    with pytest.raises(ValueError, match="SDPA_LOG = 'everything'; expected names among plans"):
        cache.get("key", lambda: 1)
    monkeypatch.delenv("SDPA_LOG")
    settings.cache_clear()
    assert cache.get("key", lambda: 1) == 1


@pytest.mark.parametrize(("value", "lines"), [("plans", 3), ("", 0)])
def test_the_environment_variable_prints_to_stderr(value: str, lines: int) -> None:
    code = """
from sdpa_core.plan_cache import PlanCache
cache = PlanCache()
for _ in range(2):
    cache.get("key", lambda: 1, lambda: "what it is for")
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"SDPA_LOG": value, "PYTHONPATH": ":".join(sys.path)},
    )
    found = result.stderr.splitlines()
    assert [line.split()[1] for line in found] == ["miss", "build", "hit"][:lines]
    assert all(line.startswith("sdpa_core.plans: ") for line in found)
    assert all(line.endswith("what it is for") for line in found)
    assert not result.stdout


# ------------------------------------------------------------- the plans of the cuDNN backend


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Graphs that were built, in an empty cache, by a build that takes as long as it must."""
    built: list[object] = []

    def build(spec: object, *args: object, **kwargs: object) -> session.Built:
        built.append(spec)
        return session.Built(b"blob", 0, "engine")

    installed = SimpleNamespace(__version__="1.32.0", backend_version=lambda: 92801)
    monkeypatch.setattr(session, "frontend", lambda: installed)
    monkeypatch.setattr(session, "build", build)
    monkeypatch.setattr(probe, "cache", PlanCache())
    return built


def test_asking_twice_and_executing_builds_once(
    make_problem: MakeProblem, builds: list[object]
) -> None:
    problem = make_problem(training=False)
    for _ in range(2):
        decision = decide(problem, H200, backend="cudnn")
        assert decision.forward.answer is not None
        assert decision.forward.answer.verdict is Verdict.SUPPORTED
    plan = probe.plan_or_refusal(problem, H200, Direction.FORWARD)
    assert len(builds) == 1
    assert probe.plan_or_refusal(problem, H200, Direction.FORWARD) is plan


CHANGES: dict[str, object] = {
    "band": Band.causal(),
    "bias": TensorSpec.dense((1, 1, 128, 128), DType.BFLOAT16),
    "softmax": Softmax.LEARNABLE,
    "dropout_p": 0.1,
    "seq_lens_kv": True,
    "return_lse": True,
    "return_max_logit": True,
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_graph_is_one_more_build(
    name: str, make_problem: MakeProblem, builds: list[object]
) -> None:
    problem = make_problem(training=False)
    for asked in (problem, replace(problem, **{name: CHANGES[name]})):
        for _ in range(2):
            probe.plan_or_refusal(asked, H200, Direction.FORWARD)
    assert len(builds) == 2
    assert builds[0] != builds[1]


def test_what_does_not_reach_the_graph_builds_nothing(
    make_problem: MakeProblem, builds: list[object]
) -> None:
    problem = make_problem(training=False, return_lse=True)
    for asked in (problem, replace(problem, deterministic=True), replace(problem, training=True)):
        probe.plan_or_refusal(asked, H200, Direction.FORWARD)
    assert len(builds) == 1


def test_sixteen_threads_that_ask_for_one_plan_build_it_once(
    make_problem: MakeProblem, builds: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier, release = threading.Barrier(16), threading.Event()
    fast = session.build

    def slow(*args: object, **kwargs: object) -> session.Built:
        release.wait(10)
        return fast(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "build", slow)

    def ask() -> object:
        barrier.wait(10)
        return probe.plan_or_refusal(make_problem(), H200, Direction.BACKWARD)

    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(ask) for _ in range(16)]
        while probe.cache.counters["wait"] < 15:
            pass
        release.set()
        plans = {id(answer.result(10)) for answer in answers}
    assert len(builds) == 1
    assert len(plans) == 1
