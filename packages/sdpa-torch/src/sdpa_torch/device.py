"""What the core wants to know of a torch device."""

from __future__ import annotations

from functools import cache

import torch

from sdpa_core import DeviceSpec


@cache
def device_spec(device: torch.device) -> DeviceSpec:
    """The description of a device of this machine; its cuDNN is the one torch loaded."""
    if device.type in ("cpu", "meta"):
        return DeviceSpec.cpu()
    if device.type != "cuda" or torch.version.cuda is None:
        return DeviceSpec(platform=device.type, name=str(device))
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = torch.cuda.get_device_properties(index)
    return DeviceSpec(
        platform="cuda",
        name=properties.name,
        sm=properties.major * 10 + properties.minor,
        sm_count=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        cudnn_version=torch.backends.cudnn.version(),
        ordinal=index,
    )
