"""Rules about the device and the version of cuDNN."""

from __future__ import annotations

from ...device import DeviceSpec, format_version
from ...problem import AttentionProblem, Direction
from ...reasons import Unsupported
from ..known_bad import Remedy, faults
from .rule import Reasons, needs, upgrade

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
    version = device.cudnn_version
    found = [
        row
        for row in faults(problem, device, direction)
        if row.remedy is Remedy.REFUSE and (version is not None or row.affects_all)
    ]
    # Last what stays after an upgrade.
    for row in sorted(found, key=lambda row: row.fixed is None):
        if row.fixed is None:
            need = f"a version without this fault, but none is known: {row.name}"
        else:
            need = f">= {format_version(row.fixed)}: {row.name}"
        yield Unsupported(
            "cuDNN",
            "any version" if version is None else format_version(version),
            f"{need} ({row.source})",
            row.change or upgrade(),
        )
