"""Looking at the machine. Imports no framework, and loads only the driver and cuDNN."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

from .. import _native
from .._loader import find_nvrtc, loaded_path, locate_cudnn
from .environment import Cudnn, Driver, Environment, Gpu, Store

#: Packages whose versions are told, besides NVIDIA's.
_PACKAGES = (
    *("sdpa-core", "sdpa-ffi", "sdpa-torch", "sdpa-jax", "sdpa-cutedsl"),
    *("torch", "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    *("nvidia-cudnn-frontend", "nvidia-cudnn-cu11", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
)

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


def gather() -> Environment:
    """What this machine, this Python and its packages are."""
    info = _native.build_info()
    packages = dict(_versions())
    return Environment(
        platform=f"{platform.system()} {platform.machine()}",
        libc=" ".join(platform.libc_ver()).strip() or "unknown",
        python=platform.python_version(),
        compiled_frontend=info["cudnn_frontend"],
        executor_abi=info["executor_abi"],
        driver=_driver(),
        cudnn=_cudnn(),
        packages=packages,
        cudnn_wanted=dict(_wanted(packages)),
        nvrtc=find_nvrtc(),
        store=_store(),
    )


def _versions() -> Iterator[tuple[str, str]]:
    installed = {found.metadata["Name"].lower(): found.version for found in distributions()}
    for name in _PACKAGES:
        if name in installed:
            yield name, installed[name]


def _wanted(packages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Which wheel of cuDNN the frameworks bring: torch requires one, JAX has a plugin for each."""
    if "torch" in packages and (wheel := _cudnn_required_by("torch")):
        yield "torch", wheel
    for name in packages:
        if plugin := re.fullmatch(r"jax-cuda(\d+)-plugin", name):
            yield name, f"nvidia-cudnn-cu{plugin[1]}"


def _cudnn_required_by(name: str) -> str | None:
    try:
        requirements = distribution(name).requires or []
    except PackageNotFoundError:
        return None
    found = (re.match(r"nvidia-cudnn-cu\d+", requirement) for requirement in requirements)
    return next((match[0] for match in found if match), None)


def _driver() -> Driver | None:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    if status := library.cuInit(0):
        return Driver(version.value, error=_error(library, status))
    return Driver(version.value, tuple(_gpus(library)))


def _error(library: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorString(status, ctypes.byref(text))
    return (text.value or b"unknown error").decode(errors="replace") + f" ({status})"


def _gpus(library: ctypes.CDLL) -> Iterator[Gpu]:
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    for device in range(count.value):  # a CUdevice is the ordinal
        name = ctypes.create_string_buffer(256)
        memory = ctypes.c_size_t()
        capability = [ctypes.c_int(), ctypes.c_int()]
        library.cuDeviceGetName(name, len(name), device)
        library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        for value, attribute in zip(capability, (_MAJOR, _MINOR), strict=True):
            library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        major, minor = (value.value for value in capability)
        yield Gpu(name.value.decode(errors="replace"), 10 * major + minor, memory.value)


def _cudnn() -> Cudnn | None:
    """The one that the native module would take: what is located, else what the loader finds."""
    located = locate_cudnn()
    name = located.path if located else "libcudnn.so.9"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return Cudnn(located.path, located.how, error=str(error)) if located else None
    library.cudnnGetVersion.restype = library.cudnnGetCudartVersion.restype = ctypes.c_size_t
    path = located.path if located else loaded_path("libcudnn.so.9") or name
    how = located.how if located else "the system's libraries"
    return Cudnn(path, how, library.cudnnGetVersion(), library.cudnnGetCudartVersion())


def _store() -> Store | None:
    """The plan store of sdpa-core, as far as this version of it has one."""
    try:
        from sdpa_core.config import settings
        from sdpa_core.store import Folder, NotTrustedError, user_folder
        from sdpa_core.store.setting import NoFolderError
    except ImportError:
        return None
    try:
        asked = settings()
        base = user_folder(asked)
        folder = Folder(base)
        plans = [entry for entry in folder.entries() if entry.is_plan]
    except (NoFolderError, NotTrustedError, OSError, RuntimeError, ValueError) as error:
        return Store(error=f"{error}")
    size = sum(entry.bytes for entry in plans)
    return Store(str(folder.path), len(plans), size, _is_writable(folder.path), asked.plan_store)


def _is_writable(folder: Path) -> bool:
    """Whether this user can add files: to the folder, or to the nearest one that exists."""
    with suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    return False
