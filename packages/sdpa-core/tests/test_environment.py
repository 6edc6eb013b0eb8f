"""A broken installation is an error that ends with the command that mends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

from sdpa_core import (
    AttentionProblem,
    DeviceSpec,
    Direction,
    DType,
    SdpaEnvironmentError,
    TensorSpec,
)
from sdpa_core.cudnn import deviceless, packages, refusal, rules, session
from sdpa_core.device import device_names, format_version


@pytest.fixture(autouse=True)
def fresh_frontend() -> object:
    session.frontend.cache_clear()
    yield
    session.frontend.cache_clear()


def test_no_frontend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(SdpaEnvironmentError, match=r"pip install 'nvidia-cudnn-frontend>=1.28'"):
        session.frontend()


def test_no_cudnn_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> int:
        raise RuntimeError("libcudnn.so.9: cannot open shared object file")

    broken = SimpleNamespace(__version__="1.32.0", backend_version=absent)
    monkeypatch.setitem(sys.modules, "cudnn", broken)
    with pytest.raises(
        SdpaEnvironmentError, match=r"finds no cuDNN library .* nvidia-cudnn-cu1\d$"
    ):
        session.frontend()


@pytest.fixture
def packages_installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make these the packages of cuDNN that are installed."""

    def install(*names: str) -> None:
        monkeypatch.setattr(packages, "_is_installed", names.__contains__)
        packages.installed.cache_clear()

    yield install
    packages.installed.cache_clear()


@pytest.mark.parametrize("name", ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13"])
def test_the_package_of_the_cuda_in_use_is_named(
    packages_installed: Callable[..., None], name: str
) -> None:
    packages_installed(name)
    assert packages.pip_install("-U {cudnn}") == f"pip install -U {name}"
    problem = AttentionProblem.of(*[TensorSpec.dense((1, 1, 64, 64), DType.BFLOAT16)] * 3)
    old = DeviceSpec.named("h200", cudnn_version=90000)
    (reason,) = rules.reasons(problem, old, Direction.FORWARD)
    assert reason.hint == f"pip install -U {name}"


@pytest.mark.parametrize("names", [(), ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")])
def test_a_cuda_that_is_not_known_has_a_command_for_each(
    packages_installed: Callable[..., None], names: tuple[str, ...]
) -> None:
    packages_installed(*names)
    assert packages.pip_install("-U {cudnn}") == (
        "pip install -U nvidia-cudnn-cu13, or with CUDA 12 pip install -U nvidia-cudnn-cu12"
    )


def test_another_cudnn_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = SimpleNamespace(__version__="1.32.0", backend_version=lambda: 92801)
    monkeypatch.setitem(sys.modules, "cudnn", loaded)
    session.check_version(DeviceSpec.named("h200"))
    session.check_version(DeviceSpec.named("h200", cudnn_version=92801))
    with pytest.raises(SdpaEnvironmentError, match=r"9\.19\.0 was asked.*9\.28\.1 is loaded.*=="):
        session.check_version(DeviceSpec.named("h200", cudnn_version=91900))


def test_a_device_that_nobody_describes(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = SimpleNamespace(__version__="1.32.0", backend_version=lambda: 92801)
    monkeypatch.setitem(sys.modules, "cudnn", loaded)
    nowhere = DeviceSpec("cuda", "a GPU", sm=90)
    with pytest.raises(SdpaEnvironmentError, match=r"DeviceSpec\.named"):
        session._device_properties(nowhere)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviceless.shutil, "which", lambda name: None)
    with pytest.raises(SdpaEnvironmentError, match=r"apt-get install gcc$"):
        deviceless._load_stub()


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deviceless.shutil, "which", lambda name: "cc")
    failed = SimpleNamespace(returncode=1, stderr="no libc", stdout="")
    monkeypatch.setattr(deviceless.subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(SdpaEnvironmentError, match=r"no libc.*apt-get install gcc libc6-dev$"):
        deviceless._load_stub()


@pytest.mark.parametrize(
    ("message", "package"),
    [
        ("CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED", "nvidia-cublas"),
        ("CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED", "nvidia-cuda-nvrtc"),
    ],
)
def test_missing_libraries_are_named(
    monkeypatch: pytest.MonkeyPatch, message: str, package: str
) -> None:
    monkeypatch.setattr(deviceless, "_has_nvrtc", lambda: False)
    with pytest.raises(SdpaEnvironmentError, match=f"pip install .*{package}"):
        deviceless.explain_failure(message)


def test_no_cublaslt_is_found_out_before_cudnn_ends_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deviceless, "_PIP_LIBRARIES", ())
    monkeypatch.setattr(deviceless, "_can_load", lambda *names: False)
    with pytest.raises(SdpaEnvironmentError, match=r"pip install nvidia-cublas$"):
        deviceless._preload_libraries()


def test_other_failures_are_cudnns_own_words() -> None:
    deviceless.explain_failure("CUDNN_STATUS_NOT_SUPPORTED")


def test_the_stub_is_compiled_and_answers_that_there_is_no_device() -> None:
    """In a process of its own: the stub would hide a real driver from this one."""
    code = """
import ctypes
from sdpa_core.cudnn import deviceless
deviceless._load_stub()
cuda = ctypes.CDLL("libcuda.so.1")
count, version = ctypes.c_int(7), ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
print(cuda.cuDriverGetVersion(ctypes.byref(version)), version.value)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["100", "100", "0", "0", "13000"]


def test_named_devices() -> None:
    assert {"h200", "h100", "h100-pcie", "gh200", "a100", "b200", "rtx5090"} <= set(device_names())
    for name in device_names():
        device = DeviceSpec.named(name)
        assert device.sm in (80, 90, 100, 120)
        assert device.sm_count > 100
        assert device.memory_bytes > 30 << 30
    with pytest.raises(ValueError, match="device = 'h300'; expected one of a100, b200"):
        DeviceSpec.named("h300")


def test_versions_for_people() -> None:
    assert format_version(91900) == "9.19.0"
    assert format_version(92801) == "9.28.1"
    assert str(DeviceSpec.named("h200", cudnn_version=91900)) == (
        "NVIDIA H200 (sm90, 132 multiprocessors, cuDNN 9.19.0)"
    )


def test_a_refusal_keeps_cudnn_s_reasons_and_drops_its_settings() -> None:
    """Shortened from the message of cuDNN 9.28 through frontend 1.32."""
    message = (
        "no engine - python or backend - proposed a plan for this graph (the backend declined: No "
        'valid engine configs for {"engineId":6,"smVersion":900} Warning: NOT_SUPPORTED; Reason: '
        "Only 4 sq broadcasted vectors are supported on SM90 at: this->broadcast Warning: "
        "NOT_SUPPORTED; Reason: kernelGeneration() Warning: NOT_SUPPORTED; Reason: "
        "finalize_internal() ; python engines declined: sdpa_bwd_sm100: requires SM100-103)"
    )
    assert refusal.one_line(Exception(message)) == (
        "no engine - python or backend - proposed a plan for this graph: "
        "Only 4 sq broadcasted vectors are supported on SM90"
    )
    assert refusal.one_line(Exception("no\n  settings")) == "no settings"


# -------------------------------------------------------------------------------- whose error


class NotSupportedError(RuntimeError):
    """Stands for the frontend's own type."""


#: A stand-in for the frontend, whose functions are Python in a module of its name.
FRONTEND = ModuleType("cudnn")
exec("def fail(error): raise error", FRONTEND.__dict__)
FRONTEND.cudnnGraphNotSupportedError = NotSupportedError


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (NotSupportedError("no"), refusal.GraphRefusedError),
        (ValueError("bound"), refusal.GraphRefusedError),
        (RuntimeError("CUDNN_STATUS_NOT_SUPPORTED"), refusal.GraphRefusedError),
        (RuntimeError("CUDNN_STATUS_ALLOC_FAILED"), SdpaEnvironmentError),
    ],
)
def test_errors_of_the_frontend_are_refusals_or_failures(
    error: Exception, raised: type[Exception]
) -> None:
    with pytest.raises(raised), refusal.refusals(FRONTEND):
        FRONTEND.fail(error)


@pytest.mark.parametrize("error", [ValueError("zip()"), RecursionError("NOT_SUPPORTED")])
def test_errors_of_our_own_code_surface(error: Exception) -> None:
    def ours(*_: object) -> None:
        raise error

    with pytest.raises(type(error)) as caught, refusal.refusals(FRONTEND):
        ours()
    assert caught.value is error


def test_errors_in_a_callback_that_the_frontend_calls_surface() -> None:
    exec("def call(function): function()", FRONTEND.__dict__)

    def callback() -> None:
        raise ValueError("not the frontend's")

    with pytest.raises(ValueError, match="not the frontend's"), refusal.refusals(FRONTEND):
        FRONTEND.call(callback)
