"""``python -m sdpa_ffi doctor``: what it says of machines that are made up, and of this one."""

import dataclasses
import json
import subprocess
import sys

import pytest

from sdpa_ffi import doctor
from sdpa_ffi.doctor import machine
from sdpa_ffi.doctor.checks import CHECKS, Level, examine, is_usable
from sdpa_ffi.doctor.environment import Cudnn, Driver, Environment, Gpu, Store
from sdpa_ffi.doctor.report import as_json, as_text

H200 = Gpu("NVIDIA H200", 90, 141 << 30)
GOOD = Environment(
    driver=Driver(13000, (H200,)),
    cudnn=Cudnn("/site/nvidia/cudnn/lib/libcudnn.so.9", "pip package", 91900, 13000),
    packages={
        "sdpa-ffi": "0.3.0",
        "torch": "2.11.0",
        "nvidia-cudnn-frontend": "1.32.0",
        "nvidia-cudnn-cu13": "9.19.0.56",
    },
    cudnn_wanted={"torch": "nvidia-cudnn-cu13"},
    nvrtc="/site/nvidia/cu13/lib/libnvrtc.so.13",
    store=Store("/home/me/.cache/sdpa/plans-v1", 12, 3 << 20),
)


def changed(**fields):
    """A good machine, but for these fields; packages are added, None removes one."""
    packages = {**GOOD.packages, **fields.pop("packages", {})}
    packages = {name: version for name, version in packages.items() if version is not None}
    return dataclasses.replace(GOOD, packages=packages, **fields)


def problems(env):
    return [finding for finding in examine(env) if finding.level is not Level.OK]


def test_a_good_machine_has_no_problem():
    assert problems(GOOD) == []
    assert is_usable(examine(GOOD))
    assert as_text(examine(GOOD)).endswith("nothing is wrong")


def test_what_was_found_is_told():
    text = as_text(examine(GOOD))
    for part in (
        "Linux x86_64, glibc 2.36, Python 3.11.7",
        "sdpa-ffi 0.3.0, ABI 1, compiled with cudnn-frontend 1.28.0",
        "NVIDIA driver for CUDA 13.0",
        "0: NVIDIA H200, sm90, 141 GiB",
        "cuDNN 9.19.0 for CUDA 13.0, /site/nvidia/cudnn/lib/libcudnn.so.9 (pip package)",
        "nvidia-cudnn-frontend 1.32.0",
        "torch 2.11.0, wants nvidia-cudnn-cu13",
        "/home/me/.cache/sdpa/plans-v1, 12 plans, 3.0 MiB",
    ):
        assert part in text


# By name: the machine, the level, what is said, the command that mends it.
MACHINES = {
    "no CUDA": (
        changed(driver=None),
        Level.BROKEN,
        "no NVIDIA driver",
        "nvidia-smi",
    ),
    "driver does not start": (
        changed(driver=Driver(12040, error="no CUDA-capable device is detected (100)")),
        Level.BROKEN,
        "does not start: no CUDA-capable device",
        "nvidia-smi",
    ),
    "no GPU": (
        changed(driver=Driver(13000)),
        Level.BROKEN,
        "no GPU",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "old GPU": (
        changed(driver=Driver(13000, (H200, Gpu("Tesla V100", 70, 16 << 30)))),
        Level.WARNING,
        "1: Tesla V100, sm70, 16 GiB; attention of cuDNN needs sm80",
        "export CUDA_VISIBLE_DEVICES",
    ),
    "no cuDNN": (
        changed(cudnn=None, packages={"nvidia-cudnn-cu13": None}),
        Level.BROKEN,
        "no libcudnn.so.9 was found",
        "pip install -U 'nvidia-cudnn-cu13>=9.10.2'",
    ),
    "cuDNN 8 only": (
        changed(
            cudnn=None,
            packages={"nvidia-cudnn-cu13": None, "nvidia-cudnn-cu12": "8.9.7.29"},
            cudnn_wanted={"torch": "nvidia-cudnn-cu12"},
        ),
        Level.BROKEN,
        "no libcudnn.so.9 was found (nvidia-cudnn-cu12 8.9.7.29 has none)",
        "pip install -U 'nvidia-cudnn-cu12>=9.10.2'",
    ),
    "wrong cuDNN major": (
        changed(cudnn=Cudnn("/x/libcudnn.so.9", "LD_LIBRARY_PATH", 100100, 13000)),
        Level.BROKEN,
        "cuDNN 10.1.0",
        "pip install -U 'nvidia-cudnn-cu13>=9.10.2,<10'",
    ),
    "cuDNN too old": (
        changed(cudnn=Cudnn("/x/libcudnn.so.9", "loaded already", 90100, 13000)),
        Level.BROKEN,
        "cuDNN 9.1.0 for CUDA 13.0, /x/libcudnn.so.9 (loaded already); needed is 9, from 9.10.2",
        "pip install -U 'nvidia-cudnn-cu13>=9.10.2,<10'",
    ),
    "cuDNN does not load": (
        changed(cudnn=Cudnn("/x/libcudnn.so.9", "pip package", error="file too short")),
        Level.BROKEN,
        "cannot be loaded: file too short",
        "pip install --force-reinstall --no-deps nvidia-cudnn-cu13",
    ),
    "driver older than cuDNN's CUDA": (
        changed(driver=Driver(12040, (H200,))),
        Level.BROKEN,
        "cuDNN is built for CUDA 13, the driver runs CUDA 12.4",
        "pip install nvidia-cudnn-cu12",
    ),
    "missing frontend": (
        changed(packages={"nvidia-cudnn-frontend": None}),
        Level.BROKEN,
        "nvidia-cudnn-frontend is not installed",
        "pip install -U 'nvidia-cudnn-frontend>=1.28.0'",
    ),
    "frontend too old": (
        changed(packages={"nvidia-cudnn-frontend": "1.9.0"}),
        Level.BROKEN,
        "nvidia-cudnn-frontend 1.9.0; 1.28.0 or newer is needed",
        "pip install -U 'nvidia-cudnn-frontend>=1.28.0'",
    ),
    "two cuDNN wheels": (
        changed(packages={"nvidia-cudnn-cu12": "9.10.2.21"}),
        Level.BROKEN,
        "nvidia-cudnn-cu13 is installed, nvidia-cudnn-cu12 is installed",
        (
            "pip uninstall -y nvidia-cudnn-cu12 && pip install --force-reinstall --no-deps "
            "nvidia-cudnn-cu13==9.19.0.56"
        ),
    ),
    "mixed CUDA majors": (
        changed(
            packages={"jax": "0.10.2", "jax-cuda12-plugin": "0.10.2"},
            cudnn_wanted={
                "torch": "nvidia-cudnn-cu13",
                "jax-cuda12-plugin": "nvidia-cudnn-cu12",
            },
        ),
        Level.BROKEN,
        "torch wants nvidia-cudnn-cu13, jax-cuda12-plugin wants nvidia-cudnn-cu12",
        "pip uninstall -y jax-cuda12-plugin && pip install -U 'jax[cuda13]'",
    ),
    "torch without CUDA": (
        changed(packages={"torch": "2.13.0+cpu"}),
        Level.WARNING,
        "built without CUDA",
        "pip install --force-reinstall torch",
    ),
    "JAX without CUDA": (
        changed(packages={"jax": "0.10.2"}),
        Level.WARNING,
        "no CUDA plugin",
        "pip install -U 'jax[cuda13]'",
    ),
    "no framework": (
        changed(packages={"torch": None}, cudnn_wanted={}),
        Level.WARNING,
        "neither torch nor jax",
        "pip install sdpa-torch",
    ),
    "no nvrtc": (
        changed(nvrtc=None),
        Level.WARNING,
        "cuDNN before 9.28.0 cannot build plans without a GPU",
        "pip install nvidia-cuda-nvrtc",
    ),
    "unwritable store": (
        changed(store=Store("/srv/plans-v1", 3, 0, writable=False)),
        Level.WARNING,
        "cannot be written to",
        "export SDPA_CACHE_DIR",
    ),
    "store off": (
        changed(store=Store(enabled=False)),
        Level.WARNING,
        "switched off",
        "unset SDPA_PLAN_STORE",
    ),
    "store without a place": (
        changed(store=Store(error="this user has no home")),
        Level.WARNING,
        "this user has no home",
        "export SDPA_CACHE_DIR",
    ),
    "platform": (
        changed(platform="Darwin arm64"),
        Level.BROKEN,
        "cuDNN needs one of Linux x86_64",
        "backend=reference",
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_problem_is_told_with_the_command_that_mends_it(name):
    env, level, text, fix = MACHINES[name]
    (problem,) = problems(env)
    assert problem.level is level
    assert text in problem.text
    assert fix in problem.fix
    assert is_usable(examine(env)) is (level is not Level.BROKEN)
    assert f"{level}: {problem.text}" in as_text(examine(env))
    assert f"to mend it: {problem.fix}" in as_text(examine(env))


def test_newer_cudnn_needs_no_nvrtc():
    cudnn = dataclasses.replace(GOOD.cudnn, version=92801)
    assert problems(changed(cudnn=cudnn, nvrtc=None)) == []


def test_a_core_without_a_store_is_no_problem():
    assert problems(changed(store=None)) == []


def test_every_check_has_a_name_of_its_own():
    names = [name for name, _ in CHECKS]
    assert len(set(names)) == len(names)


def test_what_is_broken_is_told_first():
    text = as_text(examine(changed(nvrtc=None, packages={"nvidia-cudnn-frontend": None})))
    assert text.index("broken: ") < text.index("warning: ")


def test_json_says_the_same():
    findings = examine(changed(driver=None))
    told = json.loads(as_json(findings))
    assert told["usable"] is False
    assert [one["text"] for one in told["findings"]] == [finding.text for finding in findings]
    assert {"check", "level", "text", "fix"} == set(told["findings"][0])


@pytest.mark.parametrize(("env", "status"), [(GOOD, 0), (changed(driver=None), 1)])
def test_the_status_says_whether_something_is_broken(env, status, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "gather", lambda: env)
    assert doctor.main(["doctor"]) == status
    assert capsys.readouterr().out.startswith("platform")
    assert doctor.main(["doctor", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["usable"] is (status == 0)


def test_another_command_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        doctor.main(["cure"])
    assert stopped.value.code == 2


def test_this_machine_is_examined_without_importing_a_framework():
    code = """
import sys
from sdpa_ffi.doctor import main
status = main(["doctor", "--json"])
assert not {"torch", "jax", "jaxlib", "cudnn", "numpy"} & set(sys.modules)
sys.exit(status)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(result.stdout)
    assert result.returncode == (0 if told["usable"] else 1), result.stderr
    assert [one["check"] for one in told["findings"]][:3] == ["platform", "executor", "driver"]


class TestGathering:
    def test_the_wheel_that_torch_requires(self, monkeypatch):
        class Torch:
            requires = ("numpy", "nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux'")

        monkeypatch.setattr(machine, "distribution", lambda name: Torch)
        wanted = dict(machine._wanted({"torch": "2.13.0", "jax-cuda13-plugin": "0.10.2"}))
        assert wanted == {"torch": "nvidia-cudnn-cu12", "jax-cuda13-plugin": "nvidia-cudnn-cu13"}

    def test_a_torch_without_cuda_requires_none(self, monkeypatch):
        class Torch:
            requires = None

        monkeypatch.setattr(machine, "distribution", lambda name: Torch)
        assert dict(machine._wanted({"torch": "2.13.0+cpu"})) == {}

    def test_a_folder_that_can_be_made_is_writable(self, tmp_path):
        assert machine._is_writable(tmp_path / "new" / "plans")
        (tmp_path / "file").touch()
        assert not machine._is_writable(tmp_path / "file" / "plans")

    def test_the_store_is_where_the_settings_say(self, tmp_path, monkeypatch):
        pytest.importorskip("sdpa_core.store")
        from sdpa_core.config import settings

        monkeypatch.setenv("SDPA_CACHE_DIR", str(tmp_path))
        settings.cache_clear()
        try:
            store = machine._store()
        finally:
            monkeypatch.undo()
            settings.cache_clear()
        assert store.folder.startswith(str(tmp_path))
        assert (store.plans, store.bytes, store.writable, store.error) == (0, 0, True, "")
