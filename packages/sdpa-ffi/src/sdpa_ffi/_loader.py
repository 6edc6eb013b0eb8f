"""Finding the process's NVIDIA libraries, and telling the native module where they are."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from . import _native

_CUDNN = ("libcudnn.so.9",)
_CUDART = ("libcudart.so.13", "libcudart.so.12")


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


def _folders(*packages: str) -> Iterator[Path]:
    """Where a library may be, in the order in which cudnn-frontend looks for cuDNN."""
    for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if entry:
            yield Path(entry)
    # Every entry of sys.path: with --target, editable installs or layered environments a package
    # need not be in the one folder that sysconfig calls purelib.
    for entry in sys.path:
        for package in packages:
            yield Path(entry or ".", "nvidia", package, "lib")


def _find(names: tuple[str, ...], *packages: str) -> str | None:
    for folder in _folders(*packages):
        for name in names:
            if (library := folder / name).is_file():
                return str(library.resolve())
    return None


def find_cudnn() -> str | None:
    """Path of the ``libcudnn.so.9`` to use, or None if none is found.

    The copy already loaded into the process (by PyTorch, JAX or cudnn-frontend) comes first, then
    the folders of ``LD_LIBRARY_PATH``, then ``nvidia/cudnn/lib`` below every entry of ``sys.path``.
    Loads nothing.
    """
    return _already_loaded(_CUDNN) or _find(_CUDNN, "cudnn")


def provide_libraries() -> None:
    """Make cuDNN, and the CUDA runtime that cudnn-frontend wants, available to the native module.

    What is not found is not reported here: the native module does, if it turns out to be needed.
    """
    if cudnn := find_cudnn():
        _native.set_cudnn_path(cudnn)
    # For graphs that copy or clear something themselves (ALiBi, some backward passes),
    # cudnn-frontend opens libcudart by its bare name, which finds pip's only if it is loaded.
    if not _already_loaded(_CUDART) and (cudart := _find(_CUDART, "cu13", "cuda_runtime")):
        ctypes.CDLL(cudart)
