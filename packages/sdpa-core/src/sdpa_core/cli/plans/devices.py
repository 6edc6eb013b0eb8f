"""Devices to plan for: those of the library's list, and others by their properties."""

from __future__ import annotations

import json
from pathlib import Path

from ...device import DeviceSpec, device_names

#: Properties that are needed here, cuDNN's names; cuDNN itself reads all of them.
_NEEDED = {"deviceName": str, "deviceVer": int, "multiProcessorCount": int, "totalGlobalMem": int}


def device(text: str, cudnn_version: int | None = None) -> DeviceSpec:
    """The device of a name, or of a file of properties, ``PROPS.json``.

    Raises:
        TypeError, ValueError: the name is not in the list, or the file is wrong; the text names
            it.
    """
    if text.endswith(".json"):
        return _read(Path(text), cudnn_version)
    if text.lower() not in device_names():
        names = ", ".join(device_names())
        raise ValueError(f"device = {text!r}; expected one of {names}, or a file of properties")
    return DeviceSpec.named(text, cudnn_version=cudnn_version)


def _read(path: Path, cudnn_version: int | None) -> DeviceSpec:
    """A device by its properties.

    cuDNN's JSON, or an object with it under ``properties``.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: it is no JSON ({error})") from error
    properties = found.get("properties", found) if isinstance(found, dict) else None
    if not isinstance(properties, dict):
        raise TypeError(f"{path}: expected an object of device properties")
    for name, kind in _NEEDED.items():
        if type(properties.get(name)) is not kind:
            raise ValueError(
                f"{path}: {name} = {properties.get(name)!r}; expected of type {kind.__name__}"
            )
    return DeviceSpec(
        platform="cuda",
        name=properties["deviceName"],
        sm=properties["deviceVer"] // 10,
        sm_count=properties["multiProcessorCount"],
        memory_bytes=properties["totalGlobalMem"],
        cudnn_version=cudnn_version,
        properties=json.dumps(properties),
    )
