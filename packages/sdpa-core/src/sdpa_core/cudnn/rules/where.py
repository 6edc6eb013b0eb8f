"""Rules about the device and the version of cuDNN."""

from __future__ import annotations

from ...device import DeviceSpec, format_version
from ...problem import AttentionProblem, Direction
from ...reasons import Unsupported
from ..known_bad import Remedy, faults
from .rule import UPGRADE, Reasons, needs

#: Older ones have limits of their own that nobody could check here (head dims, a single query with
#: a band, windows with a bias), and 9.10.0 and 9.10.1 are wrong (cudnn-frontend 1.32,
#: sdpa_support_surface.h).
MINIMUM_CUDNN = 91002


def platform(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """cudnn-frontend 1.32, sdpa_support_surface.h."""
    if device.platform != "cuda":
        yield Unsupported("device", device.name, "an NVIDIA GPU")
    elif device.sm < 80:
        yield Unsupported("compute capability", device.sm / 10, ">= 8.0 (Ampere)")


def version(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    yield from needs(device, MINIMUM_CUDNN, "attention")


def released_faults(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """What cuDNN would run, wrongly: ``known_bad``.

    Of a cuDNN that is not known only what is wrong in every version.
    """
    for row in faults(problem, device, direction):
        known = device.cudnn_version is not None or row.affects_all
        if row.remedy is not Remedy.REFUSE or not known:
            continue
        need = f">= {format_version(row.fixed)}" if row.fixed else "a version without this fault"
        yield Unsupported(
            "cuDNN",
            format_version(device.cudnn_version) if device.cudnn_version else "any version",
            f"{need}: {row.name} ({row.source})",
            row.change or (UPGRADE if row.fixed else ""),
        )
