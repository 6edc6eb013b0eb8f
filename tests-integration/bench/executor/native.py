"""Compiling and calling the C++ loops of ``bench/native``.

``python -m bench.executor.native FOLDER NAME ...`` compiles ahead of a run.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .figures import CannotRunError

_SOURCES = Path(__file__).resolve().parents[1] / "native"
_FIND_HEADERS = (
    Path(__file__).resolve().parents[3] / "packages" / "sdpa-ffi" / "cmake" / "find_headers.py"
)
_TOOLKIT = Path("/usr/local/cuda/include")

RAW = "raw_execute"
FRONTEND = "frontend_execute"  # takes a minute to compile


class _Plan(ctypes.Structure):
    """``LoopPlan`` of loop.h."""

    _fields_ = [
        ("libcudnn", ctypes.c_char_p),
        ("data", ctypes.c_char_p),
        ("bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("uids", ctypes.POINTER(ctypes.c_int64)),
        ("pointers", ctypes.POINTER(ctypes.c_void_p)),
        ("workspace", ctypes.c_void_p),
    ]


class Loop:
    """A plan with its operands bound, executed as often as one likes by one call into C++.

    Args:
        library: one of ``compiled``.
        libcudnn: path of the cuDNN to use.
        data: the plan, as the program wants it.
        operands: uid and address of each operand, host scalars included.
        workspace, stream: addresses.
    """

    def __init__(
        self,
        library: Path,
        libcudnn: str,
        data: bytes,
        operands: Sequence[tuple[int, int]],
        workspace: int,
        stream: int,
    ) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.loop_open.restype = ctypes.c_void_p
        self._library.loop_error.restype = ctypes.c_char_p
        uids, addresses = zip(*sorted(operands), strict=True)
        plan = _Plan(
            libcudnn=libcudnn.encode(),
            data=data,
            bytes=len(data),
            stream=stream,
            count=len(uids),
            uids=(ctypes.c_int64 * len(uids))(*uids),
            pointers=(ctypes.c_void_p * len(uids))(*addresses),
            workspace=workspace,
        )
        self._loop = ctypes.c_void_p(self._library.loop_open(ctypes.byref(plan)))
        if not self._loop:
            raise RuntimeError(self._error())

    def execute(self, calls: int) -> None:
        """So many calls, as if each brought other operands."""
        self._checked(self._library.loop_execute(self._loop, calls))

    def execute_again(self, calls: int) -> None:
        """So many calls with the operands bound once."""
        self._checked(self._library.loop_execute_again(self._loop, calls))

    def close(self) -> None:
        self._library.loop_close(self._loop)

    def _checked(self, failed: int) -> None:
        if failed:
            raise RuntimeError(self._error())

    def _error(self) -> str:
        return str(self._library.loop_error().decode())


def include_folders() -> list[str]:
    """Of cuDNN, CUDA and the frontend: those of pip's packages, then the toolkit's."""
    found = subprocess.run(
        [sys.executable, str(_FIND_HEADERS)], capture_output=True, text=True, check=True
    )
    folders = [folder for folder in found.stdout.split(";") if folder]
    return [*folders, str(_TOOLKIT)] if _TOOLKIT.is_dir() else folders


def compiled(name: str, folder: Path) -> Path:
    """The library of a program, compiled unless the folder has it.

    Raises:
        CannotRunError: there is no compiler, or it fails.
    """
    library = folder / f"{name}.so"
    if library.exists():
        return library
    compiler = shutil.which("g++")
    if compiler is None:
        raise CannotRunError("g++ was not found; install it with: apt-get install g++")
    folder.mkdir(parents=True, exist_ok=True)
    partial = library.with_suffix(".part")
    headers = [part for path in include_folders() for part in ("-isystem", path)]
    # The last two: torch and the frontend's module have functions and variables of these names too.
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-fno-gnu-unique", "-Wl,-Bsymbolic"]
    command = [compiler, *flags, *headers]
    command += [str(_SOURCES / f"{name}.cc"), "-o", str(partial), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((x for x in done.stderr.splitlines() if "error" in x), done.stderr)
        raise CannotRunError(f"{name}.cc does not compile: {reason.strip()}")
    partial.replace(library)
    return library


def main(arguments: Sequence[str]) -> int:
    folder, *names = arguments
    for name in names:
        print(compiled(name, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
