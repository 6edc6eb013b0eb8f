"""Finding the process's NVIDIA libraries, and telling the native module where they are."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import _native

_CUDNN = ("libcudnn.so.9",)
_CUDART = ("libcudart.so.13", "libcudart.so.12")
_NVRTC = ("libnvrtc.so.13", "libnvrtc.so.12")


@dataclass(frozen=True, slots=True)
class Located:
    """A library, and how it was found: loaded already, a variable, or a pip package."""

    path: str
    how: str


def _already_loaded(names: tuple[str, ...]) -> str | None:
    """The path of the first library of these names that this process has mapped, if any."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no procfs
        return None
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)  # address, permissions, offset, device, inode, path
        if len(fields) == 6 and Path(fields[5]).name.startswith(names):
            return fields[5]
    return None


def _folders(*packages: str) -> Iterator[tuple[Path, str]]:
    """Where a library may be and why, in the order in which cudnn-frontend looks for cuDNN."""
    for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if entry:
            yield Path(entry), "LD_LIBRARY_PATH"
    # Every entry of sys.path: with --target, editable installs or layered environments a package
    # need not be in the one folder that sysconfig calls purelib.
    for entry in sys.path:
        for package in packages:
            yield Path(entry or ".", "nvidia", package, "lib"), "pip package"


def _find(names: tuple[str, ...], *packages: str) -> Located | None:
    for folder, how in _folders(*packages):
        for name in names:
            if (library := folder / name).is_file():
                return Located(str(library.resolve()), how)
    return None


def locate_cudnn() -> Located | None:
    """``find_cudnn``, and how it was found."""
    if loaded := _already_loaded(_CUDNN):
        return Located(loaded, "loaded already")
    return _find(_CUDNN, "cudnn")


def find_cudnn() -> str | None:
    """Path of the ``libcudnn.so.9`` to use, or None if none is found.

    The copy already loaded into the process (by PyTorch, JAX or cudnn-frontend) comes first, then
    the folders of ``LD_LIBRARY_PATH``, then ``nvidia/cudnn/lib`` below every entry of ``sys.path``.
    Loads nothing.
    """
    located = locate_cudnn()
    return located.path if located else None


def find_nvrtc() -> str | None:
    """Path of CUDA's run-time compiler, looked for like cuDNN and then by the loader."""
    if loaded := _already_loaded(_NVRTC):
        return loaded
    if located := _find(_NVRTC, "cu13", "cuda_nvrtc"):
        return located.path
    for name in _NVRTC:
        with suppress(OSError):
            ctypes.CDLL(name)
            return loaded_path(name) or name
    return None


def loaded_path(name: str) -> str | None:
    """The path from which this process has loaded a library, if it has."""
    return _already_loaded((name,))


def provide_libraries() -> None:
    """Make cuDNN, and the CUDA runtime that cudnn-frontend wants, available to the native module.

    What is not found is not reported here: the native module does, if it turns out to be needed.
    """
    if cudnn := find_cudnn():
        _native.set_cudnn_path(cudnn)
    # For graphs that copy or clear something themselves (ALiBi, some backward passes),
    # cudnn-frontend opens libcudart by its bare name, which finds pip's only if it is loaded.
    if not _already_loaded(_CUDART) and (cudart := _find(_CUDART, "cu13", "cuda_runtime")):
        ctypes.CDLL(cudart.path)
