"""What a plan store meets in the field: killed writers, full and read-only disks, others' files,
damaged and wrong plans. Never a crash, never a wrong plan, one message, and the call is answered.

docs/reliability.md lists the faults.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
from store_faults.mutations import mutated_files
from store_faults.plans import H200, a_plan, numbered, problem
from store_faults.writers import BLOB_BYTES, FILLED

from sdpa_core import DeviceSpec, Direction, Plan
from sdpa_core.config import settings
from sdpa_core.cudnn import probe, session
from sdpa_core.events import Event
from sdpa_core.plan_cache import PlanCache
from sdpa_core.store import Folder, Provenance, Store, wrap, write_pack

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the store needs POSIX")

FORWARD = Direction.FORWARD


def bad(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was told of faults, since this was asked last."""
    told = [record.msg for record in caplog.records if isinstance(record.msg, Event)]
    caplog.clear()
    return [str(event) for event in told if event.kind == "store bad"]


def python(module: str, *arguments: object, timeout: float = 120) -> str:
    """What a module prints, run in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=timeout,
        check=False,
    )
    last = result.stdout[-400:]
    assert result.returncode == 0, f"exit {result.returncode} after {last}\n{result.stderr}"
    return result.stdout


# ------------------------------------------------------------------------------ many processes


def test_killed_writers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """300 processes, each killed with SIGKILL while it does nothing but write plans."""
    python("store_faults.writers", "kill", tmp_path, 300)
    folder, plan = Folder(tmp_path), a_plan(BLOB_BYTES)
    entries = folder.entries()
    whole = {entry.key for entry in entries if entry.is_plan}
    left = [entry for entry in entries if not entry.is_plan]
    assert len(left) >= 10, "no process was killed while it wrote"
    store, found = Store(tmp_path), 0
    for number in range(300):
        step = 0
        while (each := numbered(plan, "kill", number, step)).fingerprint in whole:
            assert store.get(each.expected) == each
            step, found = step + 1, found + 1
        # The one that was being written, or not yet: it is built and kept as if nothing had been.
        assert store.get(each.expected) is None
        assert store.put(each) is each
    assert found == len(whole)
    assert not bad(caplog)
    for entry in left:
        os.utime(folder.path / entry.shelf / entry.name, (0, 0))
    Store(tmp_path).put(a_plan())
    assert all(entry.is_plan for entry in folder.entries())


@pytest.mark.parametrize("count", [2, 8])
def test_processes_that_fill_one_store(count: int, tmp_path: Path) -> None:
    """All of them use the plan that is on disk, though each had built one of its own."""
    assert json.loads(python("store_faults.writers", "fill", tmp_path, count)) == {
        "codes": [0] * count
    }
    used = [json.loads((tmp_path / f"{number}.json").read_text()) for number in range(count)]
    plan, store = a_plan(BLOB_BYTES), Store(tmp_path)
    for step in range(FILLED):
        stored = store.get(numbered(plan, "fill", step).expected)
        assert stored is not None
        assert {each[str(step)] for each in used} == {sha256(stored.container).hexdigest()}
    assert len(store.folder.entries()) == FILLED


# --------------------------------------------------------------------------- the whole way down


class Builds:
    """cuDNN, played by a counter: each of its blobs is another one."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *args: object) -> session.Built:
        self.count += 1
        return session.Built(f"blob {self.count}".encode(), 0, "engine")


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    """cuDNN's part; the store is in ``tmp_path / "store"``, and memory is empty."""
    found = Builds()
    monkeypatch.setattr(session, "frontend_version", lambda: "1.32.0")
    monkeypatch.setattr(session, "build", found)
    monkeypatch.setenv("SDPA_PLAN_STORE", "on")
    monkeypatch.setenv("SDPA_CACHE_DIR", str(tmp_path / "store"))
    yield found
    monkeypatch.undo()
    settings.cache_clear()


def asked(monkeypatch: pytest.MonkeyPatch, device: DeviceSpec = H200) -> Plan:
    """The plan that a new process is given."""
    settings.cache_clear()
    probe._store.cache_clear()
    monkeypatch.setattr(probe, "cache", PlanCache())
    plan = probe.plan_or_refusal(problem(), device, FORWARD)
    assert not isinstance(plan, str)
    return plan


def path_of(plan: Plan, tmp_path: Path) -> Path:
    return Folder(tmp_path / "store").path_of(plan.fingerprint)


def overwritten(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


Break = Callable[[Path, Plan], None]


def _owned_by_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away; see test_another_user_s_files")
    os.chown(path, 12345, 12345, follow_symlinks=False)


def _link(path: Path, plan: Plan) -> None:
    moved = path.rename(path.parents[3] / "elsewhere")
    path.symlink_to(moved)


def _link_to_nothing(path: Path, plan: Plan) -> None:
    path.unlink()
    path.symlink_to("/nowhere/at/all")


def _folder_in_place(path: Path, plan: Plan) -> None:
    path.unlink()
    path.mkdir()


def _another_header(path: Path, plan: Plan, **fields: object) -> None:
    overwritten(path, wrap(replace(plan, **fields).to_bytes(), Provenance()))


#: A fault of one file, the words of its message, and whether a second process finds it mended.
FILE_FAULTS: dict[str, tuple[Break, str, bool]] = {
    "truncated": (lambda p, _: overwritten(p, p.read_bytes()[:-1]), "hash of its contents", True),
    "empty": (lambda p, _: overwritten(p, b""), "it has 0 bytes", True),
    "a bit": (
        lambda p, _: overwritten(p, p.read_bytes()[:-1] + b"?"),
        "hash of its contents",
        True,
    ),
    "newer format": (
        lambda p, _: overwritten(p, b"SDPASTOR\2\0\0\0" + p.read_bytes()[12:]),
        "store format 2, expected is 1",
        True,
    ),
    "another cuDNN": (
        lambda p, plan: _another_header(p, plan, cudnn_version=91900),
        "its cuDNN version is 91900, expected is 92801",
        True,
    ),
    "another frontend": (
        lambda p, plan: _another_header(p, plan, frontend_version="1.28.0"),
        "its frontend version is 12800, expected is 13200",
        True,
    ),
    "another architecture": (
        lambda p, plan: _another_header(p, plan, sm=100),
        "its compute capability is 100, expected is 90",
        True,
    ),
    "another device": (
        lambda p, plan: _another_header(p, plan, sm_count=114),
        "its number of multiprocessors is 114, expected is 132",
        True,
    ),
    "another problem": (
        lambda p, plan: overwritten(p, wrap(numbered(plan, 1).to_bytes(), Provenance())),
        "its key is",
        True,
    ),
    "group may write": (
        lambda p, _: p.chmod(0o620),
        "others than the owner can write (mode 620)",
        True,
    ),
    "all may write": (
        lambda p, _: p.chmod(0o602),
        "others than the owner can write (mode 602)",
        True,
    ),
    "link": (_link, "it is a symbolic link", True),
    "dangling link": (_link_to_nothing, "it is a symbolic link", True),
    "pipe": (lambda p, _: (p.unlink(), os.mkfifo(p)), "it is no regular file", True),
    "folder": (_folder_in_place, "it is no regular file", False),
    "another owner": (lambda p, _: _owned_by_another(p), "the owner is user 12345", False),
}


@pytest.mark.parametrize("name", FILE_FAULTS)
def test_a_bad_file_is_told_once_and_built_again(
    name: str,
    tmp_path: Path,
    builds: Builds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    break_it, words, mends = FILE_FAULTS[name]
    first = asked(monkeypatch)
    break_it(path_of(first, tmp_path), first)
    again = asked(monkeypatch)
    assert (again.blob, again.stored) == (b"blob 2", False)
    (told,) = bad(caplog)
    assert words in told
    assert str(path_of(first, tmp_path)) in told
    third = asked(monkeypatch)
    assert third.blob == (b"blob 2" if mends else b"blob 3")
    assert len(bad(caplog)) == (0 if mends else 1)


def test_the_target_of_a_link_is_left_alone(
    tmp_path: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(asked(monkeypatch), tmp_path)
    before = path.read_bytes()
    _link(path, asked(monkeypatch))
    asked(monkeypatch)
    assert (tmp_path / "elsewhere").read_bytes() == before
    assert not path.is_symlink()


def _moved_and_linked(folder: Path) -> None:
    folder.symlink_to(folder.rename(folder.parents[1] / "moved"))


def _file_in_place(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


#: A fault of a folder and the words of its message.
FOLDER_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "group may write": (lambda folder: folder.chmod(0o770), "can write (mode 770)"),
    "all may write": (lambda folder: folder.chmod(0o1777), "can write (mode 1777)"),
    "another owner": (_owned_by_another, "the owner is user 12345"),
    "link": (_moved_and_linked, "is a symbolic link"),
    "file": (_file_in_place, "is no folder"),
}


@pytest.mark.parametrize("level", ["plans-v1", "shelf"])
@pytest.mark.parametrize("name", FOLDER_FAULTS)
def test_a_folder_of_others_is_neither_read_nor_written(
    name: str,
    level: str,
    tmp_path: Path,
    builds: Builds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    break_it, words = FOLDER_FAULTS[name]
    shelf = path_of(asked(monkeypatch), tmp_path).parent
    folder = shelf.parent if level == "plans-v1" else shelf
    break_it(folder)
    for count in (2, 3):
        assert asked(monkeypatch).blob == f"blob {count}".encode()
        told = bad(caplog)
        assert [words in line for line in told] == [True]
        assert str(folder) in told[0]


def test_another_user_s_files(
    tmp_path: Path,
    builds: Builds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The same where this process cannot give files away: it is the process that is another."""
    asked(monkeypatch)
    real = os.fstat

    def given_away(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        return os.stat_result((*found[:4], 54321, *found[5:]))

    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(os, "fstat", given_away)
    assert asked(monkeypatch).blob == b"blob 2"
    (told,) = bad(caplog)
    assert "the owner is user 54321, neither this user (12345) nor root" in told


# ------------------------------------------------------------------------------------- the disk


def _fails(error: int) -> Callable[..., None]:
    def call(*args: object, **kwargs: object) -> None:
        raise OSError(error, os.strerror(error))

    return call


def _writes_a_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full after some bytes: write() returns short, then fails."""
    real, left = os.write, [100]

    def write(descriptor: int, data: bytes) -> int:
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(descriptor, bytes(data)[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", write)


def _creates_nothing(error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: object, flags: int, *args: object, **kwargs: object) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY):
            raise OSError(error, os.strerror(error))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)


DISK_FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], object], str]] = {
    "full at once": (lambda m: m.setattr(os, "write", _fails(errno.ENOSPC)), "No space left"),
    "full after a while": (_writes_a_little, "No space left"),
    "full at fsync": (lambda m: m.setattr(os, "fsync", _fails(errno.ENOSPC)), "No space left"),
    "full at link": (lambda m: m.setattr(os, "link", _fails(errno.ENOSPC)), "No space left"),
    "quota": (lambda m: m.setattr(os, "fsync", _fails(errno.EDQUOT)), "quota exceeded"),
    "no folder": (lambda m: m.setattr(os, "mkdir", _fails(errno.EROFS)), "Read-only file system"),
    "read only": (lambda m: _creates_nothing(errno.EROFS, m), "Read-only file system"),
    "no permission": (lambda m: _creates_nothing(errno.EACCES, m), "Permission denied"),
    "worn out": (lambda m: m.setattr(os, "fsync", _fails(errno.EIO)), "Input/output error"),
}


@pytest.mark.parametrize("name", DISK_FAULTS)
def test_a_disk_that_takes_nothing_is_told_once_and_nothing_is_left(
    name: str,
    tmp_path: Path,
    builds: Builds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    break_it, words = DISK_FAULTS[name]
    with monkeypatch.context() as broken:
        break_it(broken)
        plan = asked(monkeypatch)
        other = replace(problem(), deterministic=True)
        probe.plan_or_refusal(other, H200, Direction.BACKWARD)
    assert plan.blob == b"blob 1"
    (told,) = bad(caplog)
    assert words in told
    assert told.endswith("the plan is used from memory")
    assert Folder(tmp_path / "store").entries() == []
    assert asked(monkeypatch).blob == b"blob 3"  # mended
    assert asked(monkeypatch).blob == b"blob 3"


def test_a_disk_that_cannot_be_read_is_told_once(
    builds: Builds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked(monkeypatch)
    with monkeypatch.context() as broken:
        broken.setattr(os, "read", _fails(errno.EIO))
        assert asked(monkeypatch).blob == b"blob 2"
    (told,) = bad(caplog)
    assert "Input/output error" in told


MOUNTED = """
import errno, os, sys
from pathlib import Path
from store_faults.plans import a_plan, numbered
from sdpa_core.store import Store
from sdpa_core.plan_cache import PlanCache
folder, cache = Path(sys.argv[1]), PlanCache()
store, plan = Store(folder / "store", count=cache.count), a_plan(30_000)
for step in range(20):
    each = numbered(plan, step)
    assert store.put(each) is each
    found = store.get(each.expected)
    assert found is None or found == each
print(cache.counters["store write"], cache.counters["store bad"], len(store.folder.entries()))
"""


@pytest.mark.parametrize(
    ("mount", "least", "most", "words"),
    [
        ("mount -t tmpfs -o size=256k tmpfs {0}", 1, 19, "No space left on device"),
        ("mount -t tmpfs -o ro tmpfs {0}", 0, 0, "Read-only file system"),
    ],
    ids=["full", "read only"],
)
def test_real_file_systems(mount: str, least: int, most: int, words: str, tmp_path: Path) -> None:
    """In a mount namespace of its own, where the system lets this user make one."""
    script = f"{mount.format(tmp_path)} && exec {sys.executable} -c '{MOUNTED}' {tmp_path}"
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rm", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    result = subprocess.run(
        [unshare, "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    if "mount:" in result.stderr:
        pytest.skip("mounting is not allowed here")
    assert result.returncode == 0, result.stderr
    written, told, files = map(int, result.stdout.split())
    assert least <= written <= most
    assert (told, files) == (1, written)
    assert result.stderr.count(words) == 1


# ----------------------------------------------------------------------------------- wrong plans


def test_10000_wrong_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Half of them damaged, half sealed: hashes fit, headers, operands or sizes do not.

    What a sealed file may change is what nobody but cuDNN knows, which the executor compares with
    the graph: the workspace and the engine's name.
    """
    plan = a_plan(512)
    path = Store(tmp_path).folder.path_of(plan.fingerprint)
    Store(tmp_path).put(plan)
    read = refused = 0
    for data in mutated_files(plan.container, 10_000, seed=4):
        overwritten(path, data)
        caplog.clear()
        found = Store(tmp_path).get(plan.expected)
        told = bad(caplog)
        if found is None:
            refused += 1
            assert len(told) == 1
            assert not path.exists()
        else:
            read += 1
            assert told == []
            assert found.graph is plan.graph
            assert found.expected == plan.expected
            assert found.blob == plan.blob
            assert found.container[:24] == plan.container[:24]
            assert found.container[32:120] == plan.container[32:120]
            assert found.workspace_bytes < 1 << 63
    assert read + refused == 10_000
    assert refused > 9_000


def test_wrong_files_are_built_again(
    tmp_path: Path,
    builds: Builds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = asked(monkeypatch)
    path, rebuilt = path_of(first, tmp_path), 0
    for data in mutated_files(first.container, 100, seed=7):
        overwritten(path, data)
        before = builds.count
        plan = asked(monkeypatch)
        if builds.count > before:
            rebuilt += 1
            assert len(bad(caplog)) == 1
            assert plan.blob == f"blob {builds.count}".encode()
            assert asked(monkeypatch).container == plan.container
            overwritten(path, wrap(first.container, Provenance()))
    assert rebuilt > 80


def test_wrong_files_in_a_pack(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With hashes of the manifest that fit the file, too: a pack made of wrong files."""
    plan = a_plan(512)
    pack = write_pack(tmp_path / "pack", [wrap(plan.container, Provenance())])
    path, manifest = pack.path_of(plan.fingerprint), pack.path / "manifest.json"
    for data in mutated_files(plan.container, 200, seed=9):
        overwritten(path, data)
        listed = {"sha256": sha256(data).hexdigest(), "bytes": len(data)}
        manifest.write_text(json.dumps({"format": 1, "plans": {plan.fingerprint: listed}}))
        caplog.clear()
        found = Store(tmp_path / "user", [pack.path]).get(plan.expected)
        assert found is None or found.blob == plan.blob
        assert len(bad(caplog)) == (found is None)
        assert path.exists()


def test_the_native_parser_survives_wrong_containers(tmp_path: Path) -> None:
    """The executor reads containers from exported programs too, which no store has checked."""
    pytest.importorskip("sdpa_ffi")
    (tmp_path / "container").write_bytes(a_plan(512).container)
    told = python("store_faults.native", "describe", tmp_path / "container", 10_000, 4)
    refused = int(told.splitlines()[-1].split()[1])
    assert 5_000 < refused < 10_000  # what is no contradiction in itself is no fault to a parser


def a_real_plan(store_of: pytest.MonkeyPatch) -> tuple[DeviceSpec, Plan]:
    """A plan that cuDNN made, from the store that ``store_of`` has set."""
    pytest.importorskip("sdpa_ffi")
    pytest.importorskip("cudnn")
    device = DeviceSpec.named("h200", cudnn_version=session.cudnn_version())
    return device, asked(store_of, device)


@pytest.fixture
def store_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.setenv("SDPA_PLAN_STORE", "on")
    monkeypatch.setenv("SDPA_CACHE_DIR", str(tmp_path / "store"))
    yield monkeypatch
    monkeypatch.undo()
    settings.cache_clear()


def test_cudnn_survives_wrong_containers(tmp_path: Path, store_on: pytest.MonkeyPatch) -> None:
    """Behind the parser: a real plan whose header lies, or whose blob ends early."""
    _, plan = a_real_plan(store_on)
    (tmp_path / "container").write_bytes(plan.container)
    told = python("store_faults.native", "verify", tmp_path / "container", 100, 4)
    refused = int(told.splitlines()[-1].split()[1])
    assert refused >= 20


def test_a_sealed_plan_that_cudnn_does_not_take_is_built_again(
    tmp_path: Path, store_on: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but cuDNN can tell that the blob ends early; the executor asks it."""
    device, plan = a_real_plan(store_on)
    import sdpa_ffi

    cut = wrap(replace(plan, blob=plan.blob[: len(plan.blob) // 2]).to_bytes(), Provenance())
    overwritten(path_of(plan, tmp_path), cut)
    assert asked(store_on, device).stored
    bad(caplog)

    def load(plan: Plan) -> None:
        sdpa_ffi.verify(plan.container, device.properties)

    for stored in (False, True):
        found = probe.plan_that_loads(problem(), device, FORWARD, load)
        assert isinstance(found, Plan)
        assert (found.stored, len(found.blob) > len(plan.blob) // 2) == (stored, True)
        assert len(bad(caplog)) == (not stored)
        asked(store_on, device)


class Refuses:
    """sdpa-ffi, which cannot load one blob."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self.loaded: list[bytes] = []

    def load(self, container: bytes, *, device: int) -> SimpleNamespace:
        if container.endswith(self._blob):
            raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED")
        self.loaded.append(container)
        return SimpleNamespace(execute=None)


def test_torch_builds_a_plan_again_that_cannot_be_loaded(
    builds: Builds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = pytest.importorskip("sdpa_torch.cudnn.runtime")
    stored = asked(monkeypatch)
    executor = Refuses(stored.blob)
    monkeypatch.setattr(runtime, "executor", lambda: executor)
    asked(monkeypatch)
    plan = runtime.NativeRuntime().plan(problem(), replace(H200, ordinal=0), FORWARD)
    assert plan.blob == b"blob 2"
    assert executor.loaded == [plan.container]
    (told,) = bad(caplog)
    assert "CUDNN_STATUS_NOT_INITIALIZED" in told


def test_a_plan_that_cannot_be_loaded_on_a_disk_that_cannot_be_written(
    builds: Builds, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays on the disk, and is built in memory."""
    executor = Refuses(asked(monkeypatch).blob)
    asked(monkeypatch)
    with monkeypatch.context() as broken:
        broken.setattr(os, "unlink", _fails(errno.EROFS))
        _creates_nothing(errno.EROFS, broken)
        plan = probe.plan_that_loads(
            problem(), H200, FORWARD, lambda plan: executor.load(plan.container, device=0)
        )
    assert plan.blob == b"blob 2"
    assert len(bad(caplog)) == 2


HIT = """
import sys
from store_faults.plans import problem
from sdpa_core import DeviceSpec, Direction
from sdpa_core.cudnn import probe
probe.plan_or_refusal(problem(), DeviceSpec.named("h200", cudnn_version=int(sys.argv[1])),
                      Direction.FORWARD)
assert probe.cache.counters == {"miss": 1, "store hit": 1}, probe.cache.counters
loaded = {"cudnn", "filelock", "platformdirs", "torch", "jax"} & set(sys.modules)
assert not loaded, loaded
"""


def test_a_plan_from_the_store_needs_no_frontend(store_on: pytest.MonkeyPatch) -> None:
    """Importing it, which loads cuDNN, takes longer than reading the plan."""
    device, _ = a_real_plan(store_on)
    result = subprocess.run(
        [sys.executable, "-c", HIT, str(device.cudnn_version)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert result.returncode == 0, result.stderr
