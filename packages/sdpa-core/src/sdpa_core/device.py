"""What a decision needs to know of a device; nothing here touches one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device and the cuDNN that will run on it, real or imagined.

    Two GPUs of one model compare equal and share plans.

    Attributes:
        platform: ``cuda``, ``cpu``, or what the framework calls it.
        name: for people.
        sm: compute capability, 90 for 9.0; 0 if the device is not a GPU.
        sm_count: multiprocessors.
        memory_bytes: device memory; 0 if unknown.
        cudnn_version: as ``cudnnGetVersion()``, 91900 for 9.19.0; None if not known.
        ordinal: the CUDA ordinal of a real device that can be asked; None for an imagined one.
        properties: cuDNN's JSON of device properties, for planning without the device.
    """

    platform: str
    name: str
    sm: int = 0
    sm_count: int = 0
    memory_bytes: int = 0
    cudnn_version: int | None = None
    ordinal: int | None = field(default=None, compare=False)
    properties: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def cpu(cls) -> DeviceSpec:
        return cls("cpu", "CPU")

    @classmethod
    def named(cls, name: str, *, cudnn_version: int | None = None) -> DeviceSpec:
        """A GPU of the library's list, present or not: ``DeviceSpec.named("h200")``.

        Raises:
            ValueError: the name is not in the list.
        """
        return replace(_named(name.lower()), cudnn_version=cudnn_version)

    def __str__(self) -> str:
        if self.platform != "cuda":
            return self.name
        cudnn = f", cuDNN {format_version(self.cudnn_version)}" if self.cudnn_version else ""
        return f"{self.name} (sm{self.sm}, {self.sm_count} multiprocessors{cudnn})"


def device_names() -> tuple[str, ...]:
    """Names that ``DeviceSpec.named`` knows."""
    folder = resources.files(__package__) / "cudnn" / "devices"
    return tuple(
        sorted(
            entry.name.removesuffix(".json")
            for entry in folder.iterdir()
            if entry.name.endswith(".json")
        )
    )


@cache
def _named(name: str) -> DeviceSpec:
    if name not in device_names():
        raise ValueError(f"device = {name!r}; expected one of {', '.join(device_names())}")
    folder = resources.files(__package__) / "cudnn" / "devices"
    properties = json.loads((folder / f"{name}.json").read_text())["properties"]
    return DeviceSpec(
        platform="cuda",
        name=properties["deviceName"],
        sm=properties["deviceVer"] // 10,
        sm_count=properties["multiProcessorCount"],
        memory_bytes=properties["totalGlobalMem"],
        properties=json.dumps(properties),
    )


def format_version(version: int) -> str:
    """``91900`` -> ``9.19.0``."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"
