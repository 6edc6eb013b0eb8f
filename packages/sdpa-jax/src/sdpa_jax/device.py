"""What the core wants to know of the devices that JAX compiles for."""

from __future__ import annotations

from functools import cache

import jax

from sdpa_core import DeviceSpec, SdpaEnvironmentError
from sdpa_core.cudnn import session


def device_spec(platform: str, ask_cudnn: bool) -> DeviceSpec:
    """The description of the devices of a lowering platform: ``cpu``, ``cuda``, ``tpu``, ...

    The GPUs of a process count as one model, as they do for XLA, which compiles once for all.

    Args:
        platform: as JAX's lowering rules name it.
        ask_cudnn: whether to find out the version of cuDNN.

    Raises:
        SdpaEnvironmentError: the platform is ``cuda`` and there is no such device here, or no
            cuDNN although it is asked for.
    """
    if platform == "cpu":
        return DeviceSpec.cpu()
    if platform != "cuda":
        return DeviceSpec(platform=platform, name=platform.upper())
    devices = cuda_devices()
    if not devices:
        raise SdpaEnvironmentError(
            "lowering for CUDA on a machine without a CUDA device needs to be told which one to "
            "plan for. Trace and lower inside: with sdpa_jax.lowering_device('h200')"
        )
    return _gpu_spec(devices[0], session.cudnn_version() if ask_cudnn else None)


def named(name: str) -> DeviceSpec:
    """A GPU of the core's list with the cuDNN of this machine, if there is one.

    Raises:
        ValueError: the name is not in the list.
    """
    try:
        version = session.cudnn_version()
    except SdpaEnvironmentError:  # rules can still answer, and planning will say what is missing
        version = None
    return DeviceSpec.named(name, cudnn_version=version)


def resolve(device: object) -> DeviceSpec:
    """The description that a ``device`` argument stands for.

    Args:
        device: a description, a name (``"h200"``, ``"cpu"``), or a ``jax.Device``.

    Raises:
        TypeError, ValueError: it is none of these.
    """
    if isinstance(device, DeviceSpec):
        return device
    if isinstance(device, jax.Device):
        return device_spec(_platform(device), ask_cudnn=True)
    if not isinstance(device, str):
        raise TypeError(f"device is a {type(device).__name__}; expected a name or a description")
    return DeviceSpec.cpu() if device == "cpu" else named(device)


def default_platform() -> str:
    """The lowering platform of JAX's default device."""
    default = jax.config.jax_default_device
    if isinstance(default, str):
        default = jax.local_devices(backend=default)[0]
    return _platform(default or jax.local_devices()[0])


def _platform(device: jax.Device) -> str:
    """The lowering platform of a device."""
    if device.platform != "gpu":
        return str(device.platform)
    return "cuda" if device in cuda_devices() else "rocm"


def cuda_devices() -> tuple[jax.Device, ...]:
    """The CUDA devices of this process."""
    try:
        return tuple(jax.local_devices(backend="cuda"))
    except RuntimeError:  # JAX's answer for a platform that it does not have
        return ()


@cache
def _gpu_spec(device: jax.Device, cudnn_version: int | None) -> DeviceSpec:
    major, minor = device.compute_capability.split(".")
    memory = device.memory_stats() or {}
    return DeviceSpec(
        platform="cuda",
        name=device.device_kind,
        sm=int(major) * 10 + int(minor),
        sm_count=device.core_count,
        memory_bytes=memory.get("bytes_limit", 0),
        cudnn_version=cudnn_version,
        ordinal=device.local_hardware_id,
    )
