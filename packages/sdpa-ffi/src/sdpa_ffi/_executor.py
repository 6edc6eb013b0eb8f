"""Loading, verifying and describing plans."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import Any

from sdpa_core.cudnn import deviceless

from . import _native
from ._loader import provide_libraries

# Once per process: searching costs more than a load that finds its plan in the registry.
_provide_libraries_once = cache(provide_libraries)


class BindingKind(enum.IntEnum):
    """What an operand of a plan is."""

    DEVICE_INPUT = 0
    DEVICE_OUTPUT = 1
    HOST_SCALAR = 2


@dataclass(frozen=True, slots=True)
class Binding:
    """One operand of a plan.

    ``bytes`` is the least number of bytes that must be addressable from the operand's pointer, 0
    for host scalars. A ``zero_fill`` output is cleared before cuDNN runs. ``dtype`` is a name such
    as ``"bfloat16"``.
    """

    uid: int
    bytes: int
    kind: BindingKind
    zero_fill: bool
    dtype: str


@dataclass(frozen=True, slots=True)
class PlanDescription:
    """The header of a plan container; sizes are in bytes.

    ``cudnn_version`` is cuDNN's integer (9.19.0 is 91900), ``frontend_version`` is
    major * 10000 + minor * 100 + patch. ``engine`` and ``fingerprint`` tell where it came from.
    """

    format: int
    blob_bytes: int
    workspace_bytes: int
    cudnn_version: int
    frontend_version: int
    sm: int
    sm_count: int
    fingerprint: bytes
    sha256: bytes
    engine: str
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verified plan needs: device workspace in bytes, and an operand for each uid."""

    workspace_bytes: int
    uids: tuple[int, ...]


def load(container: bytes, *, device: int) -> _native.LoadedPlan:
    """Load a plan for a CUDA device; loading the same container again returns the same plan.

    Takes a few milliseconds the first time and is legal while a CUDA stream is being captured.
    Loaded plans stay in memory until the process ends.

    Args:
        container: the bytes of a plan container, as ``sdpa_core`` writes them.
        device: ordinal of the CUDA device that will run it.

    Raises:
        ValueError: the container is malformed or damaged, of another format version, for another
            architecture than the device's, or there is no such device.
        ExecutorEnvironmentError: there is no cuDNN or no CUDA driver, or cuDNN has another version
            than the plan.
        RuntimeError: cuDNN or CUDA failed.
    """
    _provide_libraries_once()
    return _native.load(container, device)


def verify(container: bytes, device_properties: str) -> Verified:
    """Load a plan for a described device and check it against its header; needs no GPU.

    Without an NVIDIA driver it is read as it was built: see ``sdpa_core.cudnn.deviceless``.

    Args:
        container: the bytes of a plan container.
        device_properties: cuDNN's JSON description of the device, as
            ``cudnn.create_device_properties`` takes it.

    Raises:
        ValueError: the container is malformed, or its header contradicts its graph.
        ExecutorEnvironmentError: there is no cuDNN, or it has another version than the plan; or
            there is neither a driver nor a C compiler for its stand-in.
        RuntimeError: cuDNN cannot load the plan for that device.
    """
    # A plan from the store comes to a process that has planned nothing yet.
    deviceless.prepare()
    _provide_libraries_once()
    return Verified(*_native.verify(container, device_properties))


def describe(container: bytes) -> PlanDescription:
    """Parse a plan container, its checksum included; needs neither cuDNN nor a GPU.

    Raises:
        ValueError: the container is malformed or damaged, or of another format version.
    """
    header, records = _native.describe(container)
    bindings = tuple(
        Binding(uid, extent, BindingKind(kind), zero_fill, dtype)
        for uid, extent, kind, zero_fill, dtype in records
    )
    return PlanDescription(*header, bindings)


def check_operands(
    container: bytes,
    operands: tuple[Any, ...],
    scalars: tuple[float, ...] = (),
    workspace: Any = None,
    *,
    device: int = -1,
) -> None:
    """Make the checks of ``LoadedPlan.execute`` and run nothing; needs neither cuDNN nor a GPU.

    Args:
        container: the bytes of a plan container.
        operands: one per device binding, as for ``LoadedPlan.execute``.
        scalars: one per host scalar.
        workspace: as for ``LoadedPlan.execute``.
        device: the CUDA device that tensors must be on; -1 means host memory.

    Raises:
        ValueError: the container is malformed, or something does not fit the plan; the message
            names the uid.
        TypeError: an operand is of a kind that cannot be read.
    """
    _native.check_operands(container, device, operands, scalars, workspace)
