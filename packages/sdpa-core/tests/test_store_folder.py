"""The user's folder, eviction, and packs: whose files are read, which win, which go."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sdpa_core import AttentionProblem, DeviceSpec, Direction, Plan
from sdpa_core.events import Event
from sdpa_core.store import (
    Folder,
    NotTrustedError,
    Pack,
    Provenance,
    Store,
    inspected,
    wrap,
    write_pack,
)
from sdpa_core.store import eviction as eviction_module
from sdpa_core.testing.fake_cudnn import FakeCudnn

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the store needs POSIX")

MakeProblem = Callable[..., AttentionProblem]
H200 = DeviceSpec.named("h200", cudnn_version=91900)
KEYS = [f"{number:02x}" * 32 for number in range(16)]


@pytest.fixture
def plan(make_problem: MakeProblem) -> Plan:
    return FakeCudnn().plan(make_problem(), H200, Direction.FORWARD)


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Kinds and reasons of what was told."""
    found = [record.msg for record in caplog.records if isinstance(record.msg, Event)]
    return [(event.kind, event.reason) for event in found]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


# --------------------------------------------------------------------------------------- folder


def test_files_are_this_user_s_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new" / "cache")
    assert folder.write(KEYS[1], b"data")
    path = folder.path_of(KEYS[1])
    assert path == tmp_path / "new/cache/plans-v1/01" / f"{KEYS[1]}.plan"
    assert (mode(folder.path), mode(path.parent), mode(path)) == (0o700, 0o700, 0o600)
    assert list(path.parent.iterdir()) == [path]


def test_the_first_writer_wins(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.read(KEYS[0]) is None
    assert [folder.write(KEYS[0], data) for data in (b"first", b"second")] == [True, False]
    assert folder.read(KEYS[0]).data == b"first"


def test_sixteen_threads_that_write_one_file(tmp_path: Path) -> None:
    folder, barrier = Folder(tmp_path), threading.Barrier(16)

    def write(number: int) -> tuple[bool, bytes]:
        barrier.wait(10)
        won = folder.write(KEYS[0], bytes([number]) * 10_000)
        return won, folder.read(KEYS[0]).data

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(write, range(16)))
    assert sum(won for won, _ in answers) == 1
    assert len({data for _, data in answers}) == 1


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    folder = Folder(tmp_path)
    assert [folder.write(KEYS[0], data) for data in (b"first", b"second")] == [True, False]
    assert folder.read(KEYS[0]).data == b"first"
    assert [entry.name for entry in folder.entries()] == [f"{KEYS[0]}.plan"]


def test_only_the_file_that_was_read_is_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(KEYS[0], b"bad")
    identity = folder.read(KEYS[0]).identity
    assert not folder.remove(KEYS[0], (identity[0], identity[1] + 1))
    assert folder.remove(KEYS[0], identity)
    assert not folder.remove(KEYS[0], identity)


def test_reading_marks_a_file_as_used_once_an_hour(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(KEYS[0], b"data")
    path, now = folder.path_of(KEYS[0]), time.time()
    for age, marked in ((60, False), (7200, True)):
        os.utime(path, (now - age, now - age))
        folder.read(KEYS[0])
        assert (path.stat().st_mtime > now - age + 1) is marked


def test_the_folder_itself_may_be_a_link_or_open_to_others(tmp_path: Path) -> None:
    """Home folders are links, volumes of containers belong to all: what is below them counts."""
    real = tmp_path / "real"
    real.mkdir()
    real.chmod(0o777)
    (tmp_path / "link").symlink_to(real)
    folder = Folder(tmp_path / "link")
    folder.write(KEYS[0], b"data")
    assert folder.read(KEYS[0]).data == b"data"


def test_a_named_pipe_does_not_stop_anybody(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(KEYS[0], b"data")
    folder.path_of(KEYS[0]).unlink()
    os.mkfifo(folder.path_of(KEYS[0]))
    with pytest.raises(NotTrustedError, match="it is no regular file"):
        folder.read(KEYS[0])


def test_a_file_larger_than_any_plan_is_not_read(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write(KEYS[0], b"data")
    with folder.path_of(KEYS[0]).open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotTrustedError, match="it has 1099511627776 bytes"):
        folder.read(KEYS[0])


def test_entries_are_plans_and_temporary_files(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.entries() == []
    folder.write(KEYS[2], b"data")
    for name in (".x.1.y.tmp", "notes.txt", "folder.plan/x"):
        path = folder.path_of(KEYS[2]).parent / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (folder.path / "stray.plan").touch()
    assert [(e.name, e.bytes, e.is_plan) for e in folder.entries()] == [
        (".x.1.y.tmp", 0, False),
        (f"{KEYS[2]}.plan", 4, True),
    ]


# ------------------------------------------------------------------------------------- eviction


def filled(tmp_path: Path, plan: Plan, count: int, cap: int) -> tuple[Store, list[Plan]]:
    """A store with plans that were used an hour after each other, the first one first."""
    store = Store(tmp_path, cap=cap)
    plans = [replace(plan, fingerprint=key, blob=bytes(1000)) for key in KEYS[:count]]
    now = time.time()
    for number, each in enumerate(plans):
        store.put(each)
        path = store.folder.path_of(each.fingerprint)
        if path.exists():
            used = now - 3600 * (count - number)
            os.utime(path, (used, used))
    return store, plans


def test_what_was_not_used_for_longest_goes_first(
    tmp_path: Path, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(wrap(plan.container, Provenance.now(""))) + 1000
    store, plans = filled(tmp_path, plan, 8, cap=10 * size)
    assert store.get(plans[0].expected) is not None  # used now
    for key in KEYS[8:12]:
        store.put(replace(plan, fingerprint=key, blob=bytes(1000)))
    left = {entry.key for entry in store.folder.entries()}
    assert KEYS[0] in left
    assert not left & set(KEYS[1:3])
    assert set(KEYS[8:12]) <= left
    gone = [reason for kind, reason in events(caplog) if kind == "store eviction"]
    assert len(gone) == 12 - len(left)
    assert all("bytes, last used 20" in reason for reason in gone)


def test_a_larger_folder_shrinks_to_less_than_the_cap(tmp_path: Path, plan: Plan) -> None:
    store, _ = filled(tmp_path, plan, 12, cap=1 << 30)
    total = sum(entry.bytes for entry in store.folder.entries())
    small = Store(tmp_path, cap=total // 2)
    small.put(replace(plan, fingerprint=KEYS[12]))
    assert sum(entry.bytes for entry in small.folder.entries()) <= total // 2 * 0.9
    assert small.folder.read(KEYS[12]) is not None


def test_what_a_killed_process_left_goes_after_an_hour(tmp_path: Path, plan: Plan) -> None:
    store = Store(tmp_path)
    store.put(plan)
    shelf = store.folder.path_of(plan.fingerprint).parent
    old, new = shelf / ".a.1.b.tmp", shelf / ".c.2.d.tmp"
    for path in (old, new):
        path.write_bytes(b"half a pl")
    os.utime(old, (0, 0))
    Store(tmp_path).put(replace(plan, fingerprint=KEYS[0]))
    assert (old.exists(), new.exists()) == (False, True)


def test_one_process_at_a_time_evicts(tmp_path: Path, plan: Plan) -> None:
    filelock = pytest.importorskip("filelock")
    store, _ = filled(tmp_path, plan, 8, cap=1 << 30)
    with filelock.FileLock(store.folder.path / ".lock"):
        Store(tmp_path, cap=0).put(replace(plan, fingerprint=KEYS[8]))
        assert len(store.folder.entries()) == 9
    Store(tmp_path, cap=0).put(replace(plan, fingerprint=KEYS[9]))
    assert store.folder.entries() == []


def test_the_folder_is_measured_now_and_then(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    entries = Folder.entries
    monkeypatch.setattr(Folder, "entries", lambda self: measured.append(1) or entries(self))
    monkeypatch.setattr(eviction_module, "_WRITES_BETWEEN_SCANS", 8)
    filled(tmp_path, plan, 16, cap=1 << 30)
    assert len(measured) == 3


def test_without_filelock_nothing_is_removed_and_that_is_told_once(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "filelock", None)
    store, _ = filled(tmp_path, plan, 3, cap=0)
    assert len(store.folder.entries()) == 3
    (told,) = [reason for kind, reason in events(caplog) if kind == "store bad"]
    assert told.endswith("pip install filelock; no old plan is removed")


# ---------------------------------------------------------------------------------------- packs


@pytest.fixture
def pack(tmp_path: Path, plan: Plan) -> Pack:
    files = [wrap(plan.container, Provenance("what it is for"))]
    return write_pack(tmp_path / "pack", files)


def test_a_pack_tells_what_is_in_it(pack: Pack, plan: Plan) -> None:
    manifest = json.loads((pack.path / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert manifest["cudnn_versions"] == ["9.19.0"]
    assert manifest["frontend_versions"] == ["1.32.0"]
    assert manifest["devices"] == [{"sm": 90, "sm_count": 132}]
    assert list(manifest["plans"]) == [plan.fingerprint]
    assert pack.plans[plan.fingerprint].label == "what it is for"


def test_packs_lie_under_the_user_s_folder(
    tmp_path: Path, pack: Pack, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "user", [pack.path])
    assert store.get(plan.expected) == plan
    assert store.folder.entries() == []
    mine = replace(plan, blob=b"mine")
    store.put(mine)
    assert store.get(plan.expected).blob == b"mine"
    assert [kind for kind, _ in events(caplog)] == ["store hit", "store write", "store hit"]


def test_a_pack_needs_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"is not empty; a pack needs a folder of its own"):
        write_pack(tmp_path, [])


BAD_MANIFESTS = {
    "no JSON": (b"{", "it is no JSON"),
    "deep": (b"[" * 100_000, "it is no JSON"),
    "a list": (b"[]", "it is no manifest of format 1"),
    "newer": (b'{"format": 2}', "it is no manifest of format 1"),
    "no plans": (b'{"format": 1}', "it has no table of plans"),
    "key": (b'{"format": 1, "plans": {"../x": {"sha256": "", "bytes": 1}}}', "'../x' is malformed"),
    "entry": (b'{"format": 1, "plans": {"%s": 7}}' % (b"a" * 64), "is malformed"),
    "size": (
        b'{"format": 1, "plans": {"%s": {"sha256": "", "bytes": "1"}}}' % (b"a" * 64),
        "is malformed",
    ),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_a_bad_manifest_is_told_once_and_the_pack_is_not_used(
    name: str, tmp_path: Path, pack: Pack, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    data, words = BAD_MANIFESTS[name]
    (pack.path / "manifest.json").write_bytes(data)
    store = Store(tmp_path / "user", [pack.path])
    for _ in range(2):
        assert store.get(plan.expected) is None
    (told,) = [reason for kind, reason in events(caplog) if kind == "store bad"]
    assert told.startswith(str(pack.path / "manifest.json"))
    assert words in told


def test_a_pack_that_is_not_there_is_told(
    tmp_path: Path, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "user", [tmp_path / "nowhere"])
    for _ in range(2):
        assert store.get(plan.expected) is None
    (told,) = [reason for kind, reason in events(caplog) if kind == "store bad"]
    assert "nowhere" in told
    assert "No such file" in told


def test_a_file_of_a_pack_that_is_not_the_listed_one(
    tmp_path: Path, pack: Pack, plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    path = pack.path_of(plan.fingerprint)
    path.write_bytes(wrap(plan.container, Provenance("another")))
    assert Store(tmp_path / "user", [pack.path]).get(plan.expected) is None
    (told,) = [reason for kind, reason in events(caplog) if kind == "store bad"]
    assert told.startswith(str(path))
    assert "not the file that the pack's manifest lists" in told
    assert path.exists()


# ----------------------------------------------------------------------------------- inspection


def test_what_a_folder_holds(tmp_path: Path, plan: Plan) -> None:
    store = Store(tmp_path)
    store.put(plan, lambda: "forward")
    bad = "ff" * 32
    store.folder.write(bad, b"no plan")
    store.folder.write(KEYS[0], store.folder.read(plan.fingerprint).data)
    found = {each.key: each for each in inspected(store.folder)}
    assert list(found) == sorted(found)
    good = found[plan.fingerprint]
    assert (good.fault, good.provenance.problem) == (None, "forward")
    assert good.header.sm_count == 132
    assert (found[bad].header, "has 7 bytes" in found[bad].fault) == (None, True)
    assert "its name says 000000000000.plan" in found[KEYS[0]].fault
    assert len(store.folder.entries()) == 3
