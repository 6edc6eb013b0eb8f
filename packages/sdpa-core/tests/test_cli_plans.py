"""``python -m sdpa_core plans``: listing, checking, removing, moving and building plans."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sdpa_core import AttentionProblem, DeviceSpec, Direction, SdpaEnvironmentError
from sdpa_core.cli import main
from sdpa_core.cli.plans import ACTIONS, checking, report, running
from sdpa_core.cli.plans.tasks import Task
from sdpa_core.config import settings
from sdpa_core.cudnn import deviceless, probe, session
from sdpa_core.cudnn.refusal import GraphRefusedError
from sdpa_core.plan_cache import PlanCache

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the store needs POSIX")

MakeProblem = Callable[..., AttentionProblem]
Captured = pytest.CaptureFixture[str]
H200 = DeviceSpec.named("h200", cudnn_version=92801)
A100 = DeviceSpec.named("a100", cudnn_version=92801)

SHAPES = """
[[attention]]
heads = 4
tokens = [64, 128]
head_dim = 64
training = true
"""


class Builds:
    """cuDNN, played by a counter; ``answers`` are raised in turn instead of building."""

    def __init__(self) -> None:
        self.count = 0
        self.answers: list[Exception] = []

    def __call__(self, *args: object) -> session.Built:
        if self.answers:
            raise self.answers.pop(0)
        self.count += 1
        return session.Built(f"blob {self.count}".encode(), 4096, "engine")


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    """A store in a new folder, nothing in memory, and a cuDNN that builds at once."""
    found = Builds()
    frontend = SimpleNamespace(__version__="1.32.0", backend_version=lambda: 92801)
    monkeypatch.setattr(session, "frontend", lambda: frontend)
    monkeypatch.setattr(session, "frontend_version", lambda: "1.32.0")
    monkeypatch.setattr(session, "build", found)
    monkeypatch.setenv("SDPA_PLAN_STORE", "on")
    monkeypatch.setenv("SDPA_CACHE_DIR", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "240")
    for name in ("SDPA_CACHE_BYTES", "SDPA_PLAN_PACKS"):
        monkeypatch.delenv(name, raising=False)
    new_process(monkeypatch)
    yield found
    monkeypatch.undo()
    settings.cache_clear()


def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_clear()
    probe._store.cache_clear()
    monkeypatch.setattr(probe, "cache", PlanCache())


@pytest.fixture
def filled(
    builds: Builds,
    make_problem: MakeProblem,
    tmp_path: Path,
    capsys: Captured,
) -> list[Path]:
    """Three files of the store, in the order of their names."""
    probe.plan_or_refusal(make_problem(), H200, Direction.FORWARD)
    probe.plan_or_refusal(make_problem(), H200, Direction.BACKWARD)
    probe.plan_or_refusal(make_problem(sq=64), A100, Direction.FORWARD)
    capsys.readouterr()
    return files(tmp_path / "store")


def files(store: Path) -> list[Path]:
    return sorted(store.glob("plans-v1/??/*.plan"))


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def plans(arguments: str, status: int = 0) -> None:
    assert main(["plans", *arguments.split()]) == status


def listed(capsys: Captured, options: str = "") -> list[dict[str, object]]:
    plans(f"list --json {options}")
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


# ----------------------------------------------------------------------------- list and show


def test_list(filled: list[Path], capsys: Captured) -> None:
    plans("list")
    heading, *rows, total = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0] == "plan"
    assert [row.split()[0] for row in rows] == [file.name[:12] for file in filled]
    words = {tuple(row.split()[1:5]) for row in rows}
    assert words == {
        ("forward", "90", "9.28.1", "1.32.0"),
        ("backward", "90", "9.28.1", "1.32.0"),
        ("forward", "80", "9.28.1", "1.32.0"),
    }
    assert all("bfloat16 query[2, 4, " in row for row in rows)
    size = sum(file.stat().st_size for file in filled)
    assert total == f"3 plans, {size / 1000:.1f} kB, in {filled[0].parents[1]}"


def test_list_for_programs(filled: list[Path], capsys: Captured) -> None:
    found = listed(capsys)
    assert [plan["path"] for plan in found] == list(map(str, filled))
    (first,) = (plan for plan in found if plan["sm"] == 80)
    assert first["direction"] == "forward"
    assert str(first["problem"]).startswith("bfloat16 query[2, 4, 64, 64]")
    assert (first["sm_count"], first["cudnn_version"], first["frontend_version"]) == (
        *(108, "9.28.1", "1.32.0"),
    )
    assert (first["workspace_bytes"], first["engine"], first["fault"]) == (4096, "engine", None)


@pytest.mark.usefixtures("builds")
def test_nothing_is_listed_of_no_store(capsys: Captured) -> None:
    assert listed(capsys) == []
    plans("list")
    assert capsys.readouterr().out.startswith("0 plans, 0 bytes, in ")


def test_a_bad_file_is_listed_as_such(filled: list[Path], capsys: Captured) -> None:
    damage(filled[1])
    found = listed(capsys)
    assert [plan["fault"] for plan in found] == [
        *(None, "the hash of its contents is not the one in its frame", None),
    ]
    plans("list")
    assert "bad: the hash of its contents" in capsys.readouterr().out.splitlines()[2]


def test_show(filled: list[Path], capsys: Captured) -> None:
    plans(f"show {filled[0].name[:20].upper()}")
    told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["fingerprint"] == filled[0].stem
    assert told["path"] == str(filled[0])
    assert told["engine"] == "engine"
    assert told["workspace"] == "bytes   4,096"


def test_a_prefix_of_none_or_many(
    filled: list[Path], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "0" if filled[0].name[0] != "0" else "1"
    for file in filled[:2]:  # renamed, so that two begin alike
        folder = filled[0].parents[1] / (other * 2)
        folder.mkdir(mode=0o700, exist_ok=True)
        file.rename(folder / (other * 4 + file.name[4:]))
    for prefix, text in (
        ("ffffffffffff", "starts with ffffffffffff"),
        (other * 4, f"2 plans start with {other * 4}: "),
        ("xyz", "'xyz'; expected the first hexadecimal digits"),
        ("0" * 65, "expected the first hexadecimal digits"),
    ):
        plans(f"show {prefix}", 2)
        err = capsys.readouterr().err
        assert text in err
        assert err.count("\n") == 1


# ---------------------------------------------------------------------------------- verify


def test_verify(filled: list[Path], capsys: Captured) -> None:
    folder = filled[0].parents[1]
    plans("verify")
    assert capsys.readouterr().out == f"3 plans in {folder}: 0 bad\n"
    damage(filled[2])
    filled[0].chmod(0o666)
    plans("verify", 1)
    first, second, total = capsys.readouterr().out.splitlines()
    assert first == f"{filled[0]}: others than the owner can write (mode 666)"
    assert second.startswith(f"{filled[2]}: the hash")
    assert total == f"3 plans in {folder}: 2 bad"
    assert filled == files(folder.parent), "verify changes nothing"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """sdpa_ffi, played by one that takes what is not in ``refused``."""
    found = SimpleNamespace(refused={}, ExecutorEnvironmentError=SdpaEnvironmentError, asked=[])

    def verify(container: bytes, properties: str) -> None:
        found.asked.append(json.loads(properties)["deviceVer"])
        for blob, error in found.refused.items():
            if container.endswith(blob):
                raise error

    found.verify = verify
    monkeypatch.setitem(sys.modules, "sdpa_ffi", found)
    monkeypatch.setattr(deviceless, "prepare", lambda: None)
    return found


def test_verify_deep(filled: list[Path], executor: SimpleNamespace, capsys: Captured) -> None:
    plans("verify --deep")
    assert capsys.readouterr().out.splitlines()[1:] == ["cuDNN loads 3 plans"]
    assert sorted(executor.asked) == [800, 900, 900]
    executor.refused = {
        b"blob 1": RuntimeError("cuDNN cannot\nload it"),
        b"blob 2": SdpaEnvironmentError("cuDNN 9.19 is loaded"),
    }
    plans("verify --deep", 1)
    fault, total, *rest = capsys.readouterr().out.splitlines()
    assert fault.endswith(".plan: cuDNN cannot load it")
    assert total.endswith(": 1 bad")
    assert rest == ["cuDNN loads 1 plan", "1 plan not loaded: cuDNN 9.19 is loaded"]


def test_verify_deep_of_a_device_that_nobody_describes(
    builds: Builds,
    executor: SimpleNamespace,
    make_problem: MakeProblem,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    properties = {**json.loads(H200.properties or ""), "multiProcessorCount": 7}
    (tmp_path / "seven.json").write_text(json.dumps(properties))
    seven = DeviceSpec("cuda", "seven", sm=90, sm_count=7, cudnn_version=92801)
    probe.plan_or_refusal(make_problem(), seven, Direction.FORWARD)
    plans("verify --deep")
    assert "1 plan not loaded: no description of a device" in capsys.readouterr().out
    plans(f"verify --deep --device {tmp_path / 'seven.json'}")
    assert "cuDNN loads 1 plan\n" in capsys.readouterr().out


@pytest.mark.usefixtures("filled")
def test_verify_deep_without_the_executor(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(checking, "import_module", missing)
    plans("verify --deep", 2)
    assert "install it with: pip install sdpa-ffi" in capsys.readouterr().err


# ----------------------------------------------------------------------------------- clear


def test_clear(filled: list[Path], capsys: Captured) -> None:
    plans("clear", 2)  # nobody can be asked
    assert "3 files, " in capsys.readouterr().err
    assert files(filled[0].parents[2]) == filled
    plans("clear --yes")
    assert capsys.readouterr().out.startswith("removed 3 files from ")
    assert files(filled[0].parents[2]) == []
    plans("clear")
    assert capsys.readouterr().out.startswith("removed 0 files")


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("", 3), ("no", 3)])
def test_clear_asks(
    answer: str,
    left: int,
    filled: list[Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda question: answer)
    plans("clear")
    assert len(files(filled[0].parents[2])) == left


def test_clear_what_was_not_used_for_long(filled: list[Path], capsys: Captured) -> None:
    damage(filled[1])  # a bad file is removed like any other
    old = time.time() - 10 * 86_400
    for file in filled[:2]:
        os.utime(file, (old, old))
    plans("clear --older-than 11 --yes")
    assert files(filled[0].parents[2]) == filled
    plans("clear --older-than 9.5 --yes")
    assert files(filled[0].parents[2]) == filled[2:]
    for days in ("-1", "inf", "nan", "many"):
        plans(f"clear --older-than={days} --yes", 2)
        assert "expected a number of days" in capsys.readouterr().err


# ------------------------------------------------------------------------- export and import


def test_a_pack_carries_plans_to_another_machine(
    filled: list[Path],
    builds: Builds,
    make_problem: MakeProblem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    pack = tmp_path / "deep" / "pack"
    plans(f"export {pack}")
    assert capsys.readouterr().out.startswith("3 plans, ")
    assert [plan["fingerprint"] for plan in listed(capsys, f"--pack {pack}")] == [
        file.stem for file in filled
    ]
    monkeypatch.setenv("SDPA_CACHE_DIR", str(tmp_path / "elsewhere"))
    new_process(monkeypatch)
    plans(f"import {pack}")
    assert capsys.readouterr().out == "3 plans imported, 0 already there, 0 bad\n"
    there = files(tmp_path / "elsewhere")
    assert [file.read_bytes() for file in there] == [file.read_bytes() for file in filled]
    plans(f"import {pack}")
    assert capsys.readouterr().out == "0 plans imported, 3 already there, 0 bad\n"
    found = probe.plan_or_refusal(make_problem(), H200, Direction.FORWARD)
    assert not isinstance(found, str)
    assert found.stored
    assert builds.count == 3


def test_export_some(filled: list[Path], tmp_path: Path, capsys: Captured) -> None:
    plans(f"export {tmp_path / 'some'} --only backward")
    capsys.readouterr()
    (plan,) = listed(capsys, f"--pack {tmp_path / 'some'}")
    assert plan["direction"] == "backward"
    plans(f"export {tmp_path / 'one'} --only {filled[0].name[:12]}")
    assert capsys.readouterr().out.startswith("1 plan, ")
    plans(f"export {tmp_path / 'none'} --only float64", 2)
    assert "no plan with 'float64'" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_pack_needs_a_folder_of_its_own(
    filled: list[Path], tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "empty").mkdir()
    plans(f"export {tmp_path / 'empty'}")
    capsys.readouterr()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("empty", "link"):
        plans(f"export {tmp_path / name}", 2)
        assert f"{tmp_path / name} is there already" in capsys.readouterr().err
    assert not list(tmp_path.glob(".*unfinished"))


def test_bad_files_are_left_out(filled: list[Path], tmp_path: Path, capsys: Captured) -> None:
    damage(filled[0])
    plans(f"export {tmp_path / 'pack'}", 1)
    out, err = capsys.readouterr()
    assert out.startswith("2 plans, ")
    assert err.startswith(f"left out {filled[0]}: the hash")
    damage(tmp_path / "pack" / filled[1].name)
    plans("clear --yes")
    capsys.readouterr()
    plans(f"import {tmp_path / 'pack'}", 1)
    out, err = capsys.readouterr()
    assert out == "1 plan imported, 0 already there, 1 bad\n"
    assert "it is not the file that the pack's manifest lists" in err
    plans(f"verify --pack {tmp_path / 'pack'}", 1)
    assert "1 bad" in capsys.readouterr().out


@pytest.mark.usefixtures("builds")
def test_what_is_no_pack(tmp_path: Path, capsys: Captured) -> None:
    plans(f"import {tmp_path / 'none'}", 1)
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text("{}")
    for action in ("import", "list --pack", "verify --pack"):
        plans(f"{action} {tmp_path}", 1)
        err = capsys.readouterr().err
        assert f"{tmp_path}/manifest.json: it is no manifest of format 1" in err
        assert err.count("\n") == 1


def test_more_than_the_cap_is_removed_again(
    filled: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    plans(f"export {tmp_path / 'pack'}")
    monkeypatch.setenv("SDPA_CACHE_DIR", str(tmp_path / "small"))
    monkeypatch.setenv("SDPA_CACHE_BYTES", str(filled[0].stat().st_size * 2))
    new_process(monkeypatch)
    plans(f"import {tmp_path / 'pack'}")
    assert "were removed again" in capsys.readouterr().err
    assert len(files(tmp_path / "small")) < 3


# --------------------------------------------------------------------------- no folder to read


def test_a_folder_of_others_is_an_error(filled: list[Path], capsys: Captured) -> None:
    folder = filled[0].parents[1]
    folder.chmod(0o777)
    for action in ("list", "verify", "clear --yes"):
        plans(action, 1)
        out, err = capsys.readouterr()
        assert not out
        assert err.startswith(f"plans {action.split()[0]}: of the folder {folder}, others than")
    folder.chmod(0o700)


def test_without_a_home(monkeypatch: pytest.MonkeyPatch, builds: Builds, capsys: Captured) -> None:
    monkeypatch.delenv("SDPA_CACHE_DIR")
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    settings.cache_clear()
    plans("list", 2)
    assert "SDPA_CACHE_DIR" in capsys.readouterr().err


@pytest.mark.parametrize("action", [action.name for action in ACTIONS])
def test_help_of_actions(action: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as status:
        main(["plans", action, "--help"])
    assert status.value.code == 0
    assert f"usage: python -m sdpa_core plans {action}" in capsys.readouterr().out


# ----------------------------------------------------------------------------------- build


@pytest.fixture
def shapes(builds: Builds, tmp_path: Path) -> Path:
    pytest.importorskip("rich")
    pytest.importorskip("tqdm")
    file = tmp_path / "shapes.toml"
    file.write_text(SHAPES)
    return file


def rows(text: str) -> list[list[str]]:
    """Cells of the summary table that begin a row."""
    lines = (line for line in text.splitlines() if line.startswith("│"))
    cells = ([cell.strip() for cell in line.strip("│").split("│")] for line in lines)
    return [row for row in cells if row[0]]


def test_build(shapes: Path, builds: Builds, tmp_path: Path, capsys: Captured) -> None:
    """Two problems that train, for two devices; then nothing is left to do."""
    plans(f"build --device h200 A100 {shapes}")
    out = capsys.readouterr().out
    assert [row[:3] for row in rows(out)] == [
        ["built", "NVIDIA A100-SXM4-80GB", "4"],
        ["built", "NVIDIA H200", "4"],
    ]
    assert out.endswith("\n8 plans built\n")
    assert builds.count == len(files(tmp_path / "store")) == 8
    assert {(plan["sm"], plan["direction"]) for plan in listed(capsys)} == {
        (sm, direction) for sm in (80, 90) for direction in Direction
    }


def test_build_again(
    shapes: Path, builds: Builds, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    plans(f"build {shapes} --device h200 --direction forward")
    assert builds.count == 2
    new_process(monkeypatch)
    capsys.readouterr()
    plans(f"build {shapes} --device h200 --device h200")
    out = capsys.readouterr().out
    assert [row[:3] for row in rows(out)] == [
        ["built", "NVIDIA H200", "2"],
        ["already there", "NVIDIA H200", "2"],
    ]
    assert out.endswith("2 plans built, 2 already there\n")


def test_refusals_are_no_failures(
    shapes: Path, builds: Builds, tmp_path: Path, capsys: Captured
) -> None:
    """Our rules', with all reasons, once for those that differ in numbers; and cuDNN's."""
    builds.answers = [GraphRefusedError("no engine for this graph")]
    text = SHAPES.replace("head_dim = 64", "head_dim = [64, 12, 20]").replace("true", "false")
    shapes.write_text(text)
    plans(f"build --device h200 {shapes}")
    out = capsys.readouterr().out
    assert [row[:3] for row in rows(out)] == [
        ["built", "NVIDIA H200", "1"],
        ["refused", "NVIDIA H200", "4"],
        ["refused", "NVIDIA H200", "1"],
    ]
    assert "query.shape[-1] = 12, needs a positive multiple of 8" in out
    assert "value.shape[-1] = 12, needs a positive multiple of 8" in out
    assert f"({shapes}, [[attention]] 1: forward bfloat16 query[1, 4, 64, 12]" in out
    assert "cuDNN's answer = no engine for this graph" in out
    assert out.endswith("1 plan built, 5 refused\n")


def test_a_failure_is_told_and_the_others_are_built(
    shapes: Path, builds: Builds, tmp_path: Path, capsys: Captured
) -> None:
    builds.answers = [RuntimeError("CUDNN_STATUS_INTERNAL\n_ERROR"), OSError("disk")]
    plans(f"build --device h200 {shapes} --out {tmp_path / 'pack'}", 1)
    out = capsys.readouterr().out
    assert "RuntimeError: CUDNN_STATUS_INTERNAL _ERROR" in out
    assert "OSError: disk" in out
    assert "2 plans built, 2 failed\n2 plans, " in out
    assert len(listed(capsys, f"--pack {tmp_path / 'pack'}")) == 2


def test_a_pack_without_a_store(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("SDPA_PLAN_STORE", "off")
    new_process(monkeypatch)
    plans(f"build --device h200 {shapes}", 2)
    assert "SDPA_PLAN_STORE" in capsys.readouterr().err
    plans(f"build --device h200 {shapes} --out {tmp_path / 'pack'}")
    capsys.readouterr()
    assert len(listed(capsys, f"--pack {tmp_path / 'pack'}")) == 4
    assert not files(tmp_path / "store")
    plans(f"build --device h200 {shapes} --out {tmp_path / 'pack'}", 2)
    assert "is there already" in capsys.readouterr().err


def test_a_pack_of_what_is_kept_has_the_kept_files(
    shapes: Path, tmp_path: Path, capsys: Captured
) -> None:
    """The same bytes: JAX finds a compiled program again by them."""
    plans(f"build --device h200 {shapes}")
    plans(f"build --device h200 {shapes} --out {tmp_path / 'pack'}")
    kept = files(tmp_path / "store")
    packed = sorted((tmp_path / "pack").glob("*.plan"))
    assert [file.read_bytes() for file in packed] == [file.read_bytes() for file in kept]


def test_no_pack_of_nothing(shapes: Path, tmp_path: Path, capsys: Captured) -> None:
    shapes.write_text(SHAPES.replace("head_dim = 64", "head_dim = 12"))
    plans(f"build --device h200 {shapes} --out {tmp_path / 'pack'}")
    assert capsys.readouterr().out.endswith("0 plans built, 4 refused\nno plan, so no pack\n")
    assert not (tmp_path / "pack").exists()


def test_plans_that_could_not_be_kept_are_failures(
    shapes: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("SDPA_CACHE_BYTES", "1")
    new_process(monkeypatch)
    plans(f"build --device h200 {shapes}", 1)
    out = capsys.readouterr().out
    assert "built, but not kept in" in out
    assert "0 plans built, 4 failed" in out


@pytest.mark.parametrize("module", ["rich.console", "tqdm"])
def test_without_the_extra(
    module: str, shapes: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    importing = report.import_module

    def missing(name: str) -> object:
        if name == module:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return importing(name)

    monkeypatch.setattr(report, "import_module", missing)
    plans(f"build --device h200 {shapes}", 2)
    err = capsys.readouterr().err
    assert "pip install 'sdpa-core[cli]'" in err
    assert err.count("\n") == 1


def test_without_cudnn(shapes: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def missing() -> None:
        raise SdpaEnvironmentError("nvidia-cudnn-frontend is not installed. Install it with: pip")

    monkeypatch.setattr(session, "frontend", missing)
    plans(f"build --device h200 {shapes}", 1)
    assert capsys.readouterr().err == (
        "plans build: nvidia-cudnn-frontend is not installed. Install it with: pip\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_and_nowhere_else(
    shapes: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    plans(f"build --device h200 {shapes}")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    plans(f"build --device h200 {shapes}")
    assert "4/4" in sys.stderr.getvalue()


# ------------------------------------------------------------------------------- in processes


class Crash:
    """A task that ends the process that takes it up, as a fault inside of cuDNN does."""

    refusal = ()

    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (3,)


def test_a_process_that_ends_takes_no_other_task_with_it() -> None:
    """Tasks without a problem fail at once, in a process of their own."""
    others = [Task(None, H200, Direction.FORWARD, where) for where in ("first", "last")]
    found = {
        one.task: one.reasons[0] for one in running.run([others[0], Crash(), others[1]], 2, False)
    }
    crash = next(task for task in found if isinstance(task, Crash))
    assert found.pop(crash).startswith("the process that built it ended")
    assert set(found) == set(others)
    assert all(text.startswith("AttributeError: 'NoneType'") for text in found.values())
