"""What a rule is, and words that many of them use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...device import DeviceSpec, format_version
from ...problem import AttentionProblem, Direction
from ...reasons import Unsupported
from ..packages import pip_install

Reasons = Iterator[Unsupported]
Rule = Callable[[AttentionProblem, DeviceSpec, Direction], Reasons]


def upgrade() -> str:
    """What to change where a newer cuDNN does it."""
    return pip_install("-U {cudnn}")


def older(device: DeviceSpec, version: int) -> bool:
    """Whether the device's cuDNN is known to be older than ``version``."""
    return device.cudnn_version is not None and device.cudnn_version < version


def needs(device: DeviceSpec, version: int, feature: str) -> Reasons:
    """A reason if ``feature`` came with a later cuDNN."""
    if older(device, version):
        yield Unsupported(
            "cuDNN",
            format_version(device.cudnn_version or 0),
            f">= {format_version(version)} for {feature}",
            upgrade(),
        )
