"""What a measurement was taken on, and whether this machine can take one.

``python -m bench.machine`` prints it as JSON; with a missing piece it says which and fails.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def describe() -> dict[str, Any]:
    """The GPU, the versions and the commit, without paths or names of hosts."""
    import torch

    cuda = torch.cuda.is_available()
    properties = torch.cuda.get_device_properties(0) if cuda else None
    return {
        "gpu": properties.name if properties else None,
        "compute_capability": f"{properties.major}.{properties.minor}" if properties else None,
        "gpu_memory_gib": round(properties.total_memory / 2**30, 1) if properties else None,
        "driver": _driver(),
        "cpu": _cpu(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "jax": _version("jax"),
        "jaxlib": _version("jaxlib"),
        "cudnn_frontend": _frontend(),
        "commit": commit(),
    }


def problems() -> Iterator[str]:
    """What keeps the GPU tests and the benchmark from running here, with what to do."""
    for name, check in _CHECKS.items():
        try:
            problem = check()
        except Exception as error:  # noqa: BLE001 (an import can raise anything)
            problem = f"{type(error).__name__}: {error}"
        if problem:
            yield f"{name}: {problem}"


def _check_torch() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "finds no CUDA device"


def _check_jax() -> str | None:
    import jax

    return None if jax.local_devices(backend="cuda") else "finds no CUDA device"


def _check_frontend() -> str | None:
    import torch

    cudnn = import_module("cudnn")
    ours, theirs = cudnn.backend_version(), torch.backends.cudnn.version()
    return None if ours == theirs else f"loads cuDNN {ours}, torch has {theirs}"


def _check_executor() -> str | None:
    import_module("sdpa_ffi")
    return None


_CHECKS: dict[str, Callable[[], str | None]] = {
    "torch": _check_torch,
    "jax": _check_jax,
    "nvidia-cudnn-frontend (a folder that holds it belongs on PYTHONPATH)": _check_frontend,
    "sdpa-ffi": _check_executor,
}


def commit() -> str | None:
    """Of this tree, or what ``SDPA_COMMIT`` says where there is no git."""
    if given := os.environ.get("SDPA_COMMIT"):
        return given
    found = _output("git", "-C", str(_ROOT), "rev-parse", "HEAD")
    changed = _output("git", "-C", str(_ROOT), "status", "--porcelain")
    return f"{found} with changes" if found and changed else found


def _driver() -> str | None:
    found = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return found.splitlines()[0] if found else None


def _cpu() -> str:
    with_model = (
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    return f"{next(with_model, platform.machine())}, {os.cpu_count()} cores"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _frontend() -> str | None:
    try:
        return str(import_module("cudnn").__version__)
    except ImportError:
        return None


def _output(*command: str) -> str | None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def main() -> int:
    found = list(problems())
    if found:
        print("This machine cannot run the GPU tests:", *found, sep="\n  ", file=sys.stderr)
        return 1
    print(json.dumps(describe(), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
