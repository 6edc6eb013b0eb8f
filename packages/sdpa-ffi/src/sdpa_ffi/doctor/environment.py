"""What a machine has, as data: ``machine.gather`` fills it in, tests make it up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device. ``sm`` is its compute capability, 90 for 9.0."""

    name: str
    sm: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver.

    Attributes:
        cuda: the newest CUDA it runs, as ``cuDriverGetVersion()``: 13000 for 13.0.
        gpus: what the process sees.
        error: why it does not start; empty if it does.
    """

    cuda: int
    gpus: tuple[Gpu, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Cudnn:
    """The cuDNN library that the executor would use.

    Attributes:
        path: of the file.
        how: how it was found.
        version: as ``cudnnGetVersion()``, 91900 for 9.19.0.
        cuda: of the CUDA it was built for, 13000 for 13.0.
        error: why it cannot be loaded; empty if it can.
    """

    path: str
    how: str
    version: int = 0
    cuda: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Store:
    """The plan store.

    Attributes:
        folder: where plans are kept.
        plans: how many there are.
        bytes: their size.
        writable: whether this user can add to it.
        enabled: whether it is switched on.
        error: why it cannot be used; empty if it can.
    """

    folder: str = ""
    plans: int = 0
    bytes: int = 0
    writable: bool = True
    enabled: bool = True
    error: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that is looked at.

    Attributes:
        platform: ``Linux x86_64``.
        libc: ``glibc 2.36``.
        python: ``3.11.7``.
        compiled_frontend: the cudnn-frontend that the executor was compiled with, 12800 for 1.28.
        executor_abi: what adapters compare.
        driver: None if there is none.
        cudnn: None if there is none.
        packages: versions of installed Python packages, by name.
        cudnn_wanted: the cuDNN wheel that an installed framework asks for, by the framework.
        nvrtc: path of the CUDA run-time compiler, None if there is none.
        store: None if this sdpa-core has none.
    """

    platform: str = "Linux x86_64"
    libc: str = "glibc 2.36"
    python: str = "3.11.7"
    compiled_frontend: int = 12800
    executor_abi: int = 1
    driver: Driver | None = None
    cudnn: Cudnn | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    cudnn_wanted: Mapping[str, str] = field(default_factory=dict)
    nvrtc: str | None = None
    store: Store | None = None
