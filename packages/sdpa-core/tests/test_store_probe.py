"""Memory, then the store, then a build; what an executor refuses; what the settings say."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sdpa_core import AttentionProblem, DeviceSpec, Direction, SdpaEnvironmentError
from sdpa_core.config import read, settings
from sdpa_core.cudnn import packages, probe, session
from sdpa_core.cudnn.refusal import GraphRefusedError
from sdpa_core.events import Event
from sdpa_core.plan_cache import PlanCache
from sdpa_core.store import open_store, user_folder, write_pack
from sdpa_core.store.setting import NoFolderError

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the store needs POSIX")

MakeProblem = Callable[..., AttentionProblem]
H200 = DeviceSpec.named("h200", cudnn_version=92801)
FORWARD = Direction.FORWARD


class Builds:
    """cuDNN, played by a counter: each of its blobs is another one."""

    def __init__(self) -> None:
        self.count = 0
        self.refuses = False

    def __call__(self, *args: object) -> session.Built:
        self.count += 1
        if self.refuses:
            raise GraphRefusedError("no")
        return session.Built(f"blob {self.count}".encode(), 0, "engine")


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    """A store in a new folder, and nothing in memory."""
    found = Builds()
    monkeypatch.setattr(session, "frontend_version", lambda: "1.32.0")
    monkeypatch.setattr(session, "build", found)
    monkeypatch.setenv("SDPA_PLAN_STORE", "on")
    monkeypatch.setenv("SDPA_CACHE_DIR", str(tmp_path / "store"))
    new_process(monkeypatch)
    yield found
    monkeypatch.undo()
    settings.cache_clear()


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process begins with: nothing in memory, nothing read."""
    settings.cache_clear()
    probe._store.cache_clear()
    monkeypatch.setattr(probe, "cache", PlanCache())


def kinds(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.msg.kind for record in caplog.records if isinstance(record.msg, Event)]


def test_a_second_process_builds_nothing(
    builds: Builds,
    make_problem: MakeProblem,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = probe.plan_or_refusal(make_problem(), H200, FORWARD)
    assert probe.plan_or_refusal(make_problem(), H200, FORWARD) is first
    assert kinds(caplog) == ["miss", "store miss", "store write", "build"]
    once = ("miss", "store miss", "store write", "build", "hit")
    assert probe.cache.counters == dict.fromkeys(once, 1)
    caplog.clear()
    new_process(monkeypatch)
    second = probe.plan_or_refusal(make_problem(), H200, FORWARD)
    assert second.container == first.container
    assert second.stored
    assert builds.count == 1
    assert kinds(caplog) == ["miss", "store hit"]
    assert probe.cache.counters == {"miss": 1, "store hit": 1}


def test_another_problem_version_or_device_is_another_plan(
    builds: Builds, make_problem: MakeProblem
) -> None:
    older = DeviceSpec.named("h200", cudnn_version=91900)
    for device in (H200, older, DeviceSpec.named("a100", cudnn_version=92801)):
        probe.plan_or_refusal(make_problem(), device, FORWARD)
    probe.plan_or_refusal(make_problem(sq=64), H200, FORWARD)
    assert builds.count == 4


def test_a_refusal_is_not_kept_on_disk(
    builds: Builds, make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next version of this library may know how to ask."""
    builds.refuses = True
    for _ in range(2):
        assert probe.plan_or_refusal(make_problem(), H200, FORWARD) == "no"
    assert builds.count == 1
    new_process(monkeypatch)
    assert probe.plan_or_refusal(make_problem(), H200, FORWARD) == "no"
    assert builds.count == 2


def test_the_plan_of_the_process_that_wrote_first_is_used(
    builds: Builds, make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both had missed and built: JAX finds a program again only if the bytes of its plan stay."""
    first = probe.plan_or_refusal(make_problem(), H200, FORWARD)
    new_process(monkeypatch)
    store = probe.store()
    monkeypatch.setattr(store, "get", lambda *args: None)
    second = probe.plan_or_refusal(make_problem(), H200, FORWARD)
    assert builds.count == 2
    assert second.container == first.container
    assert probe.cache.counters["store write"] == 0


def test_the_cudnn_that_is_loaded_is_the_one_that_counts(
    builds: Builds, make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that does not say its cuDNN has the one of this process in its key."""
    plans = []
    for version in (92801, 91900):
        monkeypatch.setattr(session, "cudnn_version", lambda version=version: version)
        plans.append(probe.plan_or_refusal(make_problem(), DeviceSpec.named("h200"), FORWARD))
    assert [plan.cudnn_version for plan in plans] == [92801, 91900]
    assert plans[0].fingerprint != plans[1].fingerprint


# ------------------------------------------------------------------- what an executor refuses


class Executor:
    """Loads plans, except those with these blobs."""

    def __init__(self, *refused: bytes, error: type[Exception] = RuntimeError) -> None:
        self.refused = refused
        self.error = error

    def __call__(self, plan: object) -> None:
        if plan.blob in self.refused:
            raise self.error("CUDNN_STATUS_BAD_PARAM")


@pytest.fixture(params=["store", "pack"])
def stored(
    request: pytest.FixtureRequest,
    builds: Builds,
    make_problem: MakeProblem,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> AttentionProblem:
    """A problem whose plan, of the blob ``blob 1``, is in the user's folder or in a pack."""
    problem = make_problem()
    plan = probe.plan_or_refusal(problem, H200, FORWARD)
    if request.param == "pack":
        folder = probe.store().folder
        write_pack(tmp_path / "pack", [folder.read(plan.fingerprint).data])
        folder.delete(folder.entries()[0])
        monkeypatch.setenv("SDPA_PLAN_PACKS", str(tmp_path / "pack"))
    new_process(monkeypatch)
    return problem


def test_a_stored_plan_that_cannot_be_loaded_is_built_again_once(
    stored: AttentionProblem,
    builds: Builds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.clear()
    load = Executor(b"blob 1")
    plan = probe.plan_that_loads(stored, H200, FORWARD, load)
    assert plan.blob == b"blob 2"
    assert kinds(caplog) == [
        *("miss", "store hit", "store bad"),
        *("miss", "store miss", "store write", "build"),
    ]
    (told,) = [r.msg for r in caplog.records if r.msg.kind == "store bad"]
    assert told.reason.endswith("it cannot be loaded (CUDNN_STATUS_BAD_PARAM); it is built again")
    assert probe.plan_that_loads(stored, H200, FORWARD, load) is plan
    new_process(monkeypatch)
    assert probe.plan_that_loads(stored, H200, FORWARD, load).container == plan.container
    assert builds.count == 2


def test_a_plan_that_was_built_here_and_cannot_be_loaded_is_an_error(
    builds: Builds, make_problem: MakeProblem
) -> None:
    with pytest.raises(RuntimeError, match="BAD_PARAM"):
        probe.plan_that_loads(make_problem(), H200, FORWARD, Executor(b"blob 1"))
    assert builds.count == 1


def test_a_second_plan_that_cannot_be_loaded_is_an_error(
    stored: AttentionProblem, builds: Builds
) -> None:
    with pytest.raises(ValueError, match="BAD_PARAM"):
        probe.plan_that_loads(
            stored, H200, FORWARD, Executor(b"blob 1", b"blob 2", error=ValueError)
        )
    assert builds.count == 2


def test_what_is_missing_on_the_machine_is_not_the_plan_s_fault(
    stored: AttentionProblem, builds: Builds
) -> None:
    with pytest.raises(SdpaEnvironmentError):
        probe.plan_that_loads(
            stored, H200, FORWARD, Executor(b"blob 1", error=SdpaEnvironmentError)
        )
    assert builds.count == 1
    assert probe.plan_or_refusal(stored, H200, FORWARD).blob == b"blob 1"


def test_threads_that_meet_a_plan_that_cannot_be_loaded_build_it_once(
    stored: AttentionProblem, builds: Builds
) -> None:
    barrier, load = threading.Barrier(8), Executor(b"blob 1")
    found: list[object] = []

    def ask() -> None:
        barrier.wait(10)
        found.append(probe.plan_that_loads(stored, H200, FORWARD, load))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert {plan.blob for plan in found} == {b"blob 2"}
    assert len(found) == 8


def test_a_refusal_is_nothing_to_load(builds: Builds, make_problem: MakeProblem) -> None:
    builds.refuses = True
    assert probe.plan_that_loads(make_problem(), H200, FORWARD, Executor()) == "no"


# ------------------------------------------------------------------------------------- settings


def test_variables() -> None:
    found = read(
        {
            "SDPA_PLAN_STORE": "off",
            "SDPA_CACHE_DIR": "/somewhere",
            "SDPA_CACHE_BYTES": "1000",
            "SDPA_PLAN_PACKS": os.pathsep.join(["/a", "", "/b"]),
        }
    )
    assert (found.plan_store, found.cache_dir, found.cache_bytes) == (False, "/somewhere", 1000)
    assert found.plan_packs == ("/a", "/b")
    assert (read({}).plan_store, read({}).cache_bytes) == (True, 1 << 30)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SDPA_PLAN_STORE", "no"),
        ("SDPA_CACHE_BYTES", "1G"),
        ("SDPA_CACHE_BYTES", "-1"),
        ("SDPA_CACHE_BYTES", ""),
    ],
)
def test_a_bad_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = '{value}'"):
        read({name: value})


def test_the_store_can_be_switched_off(
    builds: Builds, make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SDPA_PLAN_STORE", "off")
    for _ in range(2):
        new_process(monkeypatch)
        probe.plan_or_refusal(make_problem(), H200, FORWARD)
    assert builds.count == 2
    assert not (tmp_path / "store").exists()


def test_where_plans_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("platformdirs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_folder(read({})).name == "sdpa"
    if sys.platform == "linux":
        assert user_folder(read({})) == tmp_path / "sdpa"
    assert user_folder(read({"SDPA_CACHE_DIR": "/x"})) == Path("/x")
    monkeypatch.setenv("HOME", "/home/me")
    assert user_folder(read({"SDPA_CACHE_DIR": "~/plans"})) == Path("/home/me/plans")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (None, "pip install platformdirs, or set SDPA_CACHE_DIR"),
        (type(sys)("platformdirs"), "this user has no home; set SDPA_CACHE_DIR"),
    ],
)
def test_no_place_to_keep_plans_is_told(
    module: object, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if module is not None:
        module.user_cache_path = lambda *args, **kwargs: Path("~/.cache/sdpa")
    monkeypatch.setitem(sys.modules, "platformdirs", module)
    with pytest.raises(NoFolderError):
        user_folder(read({}))
    counted: list[str] = []
    assert open_store(read({}), counted.append) is None
    assert counted == kinds(caplog) == ["store bad"]
    assert words in caplog.records[0].msg.reason


def test_the_frontend_s_version_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's word counts only for the module that would be imported."""
    pytest.importorskip("cudnn")
    packages.frontend_version.cache_clear()
    version = packages.frontend_version()
    assert version == str(session.frontend().__version__)
    packages.frontend_version.cache_clear()
    other = type(sys)("spec")
    other.origin = "/elsewhere/cudnn/__init__.py"
    monkeypatch.setattr(packages, "find_spec", lambda name: other)
    assert packages.frontend_version() is None
    packages.frontend_version.cache_clear()


# ---------------------------------------------------------------------------------------- forks


def test_a_forked_child_does_not_wait_for_builds_of_its_parent() -> None:
    """In a process of its own: this one has threads."""
    code = """
import os, threading, warnings
from sdpa_core.plan_cache import PlanCache
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested
cache, started, release = PlanCache(), threading.Event(), threading.Event()
def build():
    started.set()
    release.wait(10)
    return "parent's"
cache.get("kept", lambda: "kept")
thread = threading.Thread(target=cache.get, args=("key", build))
thread.start()
started.wait(10)
with cache._lock:       # as another thread may hold it
    child = os.fork()
if not child:
    same = cache.get("kept", lambda: "built")
    os._exit(0 if (same, cache.get("key", lambda: "own")) == ("kept", "own") else 1)
release.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), cache.get("key", lambda: "no"))
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.split() == ["0", "parent's"]
