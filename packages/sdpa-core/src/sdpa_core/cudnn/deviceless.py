"""Planning on a machine without a GPU.

cuDNN loads ``libcuda.so.1`` to plan at all. Where no driver is installed, a stand-in with the
few entry points it looks up is compiled from source and loaded; each answers "no device". It is
never loaded where a real driver can be, and nothing can run through it.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

from ..errors import SdpaEnvironmentError

_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_DRIVER_VERSION = 13000

#: Entry points that only have to exist: cuDNN 9.28 looks up all of these while planning.
_ABSENT = (
    *("cuInit", "cuDeviceGet", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload"),
    *("cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled"),
    *("cuCtxGetCurrent", "cuCtxGetLimit", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuStreamGetCtx"),
    *("cuLinkCreate", "cuLinkAddData", "cuLinkComplete", "cuLinkDestroy"),
    *("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuLaunchKernelEx"),
    *("cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryGetKernel", "cuLibraryUnload"),
    *("cuKernelSetAttribute", "cuKernelGetAttribute", "cuKernelGetFunction"),
    "cuOccupancyMaxPotentialClusterSize",
)


def stub_source() -> str:
    """C source of the stand-in."""
    absent = "\n".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in _ABSENT)
    return f"""\
{absent}
int cuDeviceGetCount(int *count) {{ if (count) *count = 0; return {_NO_DEVICE}; }}
int cuDriverGetVersion(int *version) {{ if (version) *version = {_DRIVER_VERSION}; return 0; }}
int cuGetErrorString(int error, const char **text) {{ if (text) *text = "no device"; return 0; }}
int cuGetErrorName(int error, const char **name) {{
  if (name) *name = "CUDA_ERROR_NO_DEVICE";
  return 0;
}}
"""


_lock = threading.Lock()


def prepare() -> None:
    """Make planning possible in this process; does nothing where a driver is installed.

    Raises:
        SdpaEnvironmentError: there is no C compiler, or it fails.
    """
    with _lock:
        _prepare_once()


@cache
def _prepare_once() -> None:
    if not _has_driver():
        _load_stub()
    _preload_libraries()


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def _load_stub() -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SdpaEnvironmentError(
            "planning without a GPU needs a C compiler, and none was found. "
            "Install one with: apt-get install gcc"
        )
    with tempfile.TemporaryDirectory(prefix="sdpa-stub-") as folder:
        source, library = Path(folder, "libcuda.c"), Path(folder, "libcuda.so.1")
        source.write_text(stub_source())
        command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
        result = subprocess.run(
            [*command, str(source)], capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise SdpaEnvironmentError(
                f"{compiler} cannot build a shared library: {result.stderr.strip()}. "
                f"Install a working one with: apt-get install gcc libc6-dev"
            )
        # Global, and before cuDNN looks for it: the loader then matches by name.
        _load(library)


def _load(library: Path) -> None:
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise SdpaEnvironmentError(
            f"{library.name} cannot be loaded ({error}). "
            f"Install it again with: pip install --force-reinstall nvidia-cuda-nvrtc nvidia-cublas"
        ) from error


#: Where pip puts what cuDNN opens by name while planning. libnvrtc-builtins sorts before libnvrtc,
#: which opens it.
_PIP_LIBRARIES = (
    "nvidia/cu1*/lib/libnvrtc*.so.*",
    "nvidia/cuda_nvrtc/lib/libnvrtc*.so.*",
    "nvidia/cu1*/lib/libcublasLt.so.*",
    "nvidia/cublas/lib/libcublasLt.so.*",
)


def _preload_libraries() -> None:
    """Offer cuDNN the libraries that pip installed, wherever libcudnn itself comes from.

    cuDNN before 9.28 compiles with the nvrtc it finds by name, and ends the process if it finds no
    cuBLASLt.
    """
    for entry in sys.path:
        for pattern in _PIP_LIBRARIES:
            for library in sorted(Path(entry or ".").glob(pattern)):
                _load(library)
    if not _can_load("libcublasLt.so.13", "libcublasLt.so.12"):
        raise SdpaEnvironmentError(
            "planning without a GPU needs cuBLASLt, and none was found. "
            "Install it with: pip install nvidia-cublas"
        )


def explain_failure(message: str) -> None:
    """Raise the environment's error if ``message`` is about a missing piece of it."""
    if "COMPILATION_FAILED" in message and not _has_nvrtc():
        raise SdpaEnvironmentError(
            f"cuDNN could not compile a kernel: no nvrtc library was found ({message[:200]}). "
            f"Install it with: pip install nvidia-cuda-nvrtc"
        )
    if "SUBLIBRARY_LOADING_FAILED" in message:
        raise SdpaEnvironmentError(
            f"cuDNN could not load one of its libraries ({message[:200]}). "
            f"Install them with: pip install nvidia-cudnn-cu13 nvidia-cublas nvidia-cuda-nvrtc"
        )


def _has_nvrtc() -> bool:
    return _can_load("libnvrtc.so.13", "libnvrtc.so.12")


def _can_load(*names: str) -> bool:
    """Whether the loader finds one of these libraries."""
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False
