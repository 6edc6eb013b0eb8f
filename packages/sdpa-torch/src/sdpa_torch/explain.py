"""What a call would do, without doing it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdpa_core import Decision, DeviceSpec, decide, positive_scale
from sdpa_core.cudnn.session import cudnn_version
from sdpa_core.errors import SdpaEnvironmentError

from . import arguments, attend, dispatch


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    causal_alignment: str = "top_left",
    return_lse: bool = False,
    deterministic: bool | None = None,
    backend: str | None = None,
    training: bool | None = None,
    device: str | torch.device | DeviceSpec | None = None,
    probe: bool = False,
    **pending: Any,
) -> Decision:
    """The backends that ``scaled_dot_product_attention`` would use, and why not the others.

    Takes the call's arguments and runs nothing; meta tensors will do. ``print`` it.

    Args:
        training: whether a backward pass follows; by default as for the call itself.
        device: decide for this device instead of the operands': a name such as ``"h200"``
            (``sdpa_core.device_names()``) or ``"cpu"``, a ``torch.device``, or a description.
        probe: let cuDNN plan the graph, which may take seconds, instead of trusting our rules.
            Works for a GPU that is not here, with the cuDNN that is.

    Raises:
        TypeError, ValueError: as the call itself.
        NoBackendError: an argument that is not implemented yet, as the call itself.
    """
    arguments.check_pending({"attn_mask": attn_mask, "dropout_p": dropout_p, **pending})
    problem, spec, against = attend.asked(
        query,
        key,
        value,
        is_causal=is_causal,
        enable_gqa=enable_gqa,
        causal_alignment=causal_alignment,
        return_lse=return_lse,
        deterministic=deterministic,
        training=training,
        spec=_resolve(device),
    )
    positive_scale(arguments.scale_of(scale, problem.query.shape[-1]))
    known = dispatch.callable_now(attend.environment)
    return decide(problem, spec, backend=backend, probe=probe, known=known, against=against)


def _resolve(device: Any) -> DeviceSpec | None:
    if device is None or isinstance(device, DeviceSpec):
        return device
    if isinstance(device, torch.device):
        return attend.environment.device_spec(device)
    if not isinstance(device, str):
        raise TypeError(f"device is a {type(device).__name__}; expected a name or a description")
    if device == "cpu":
        return DeviceSpec.cpu()
    return DeviceSpec.named(device, cudnn_version=_installed())


def _installed() -> int | None:
    """The cuDNN of this machine, for a device known by name alone; None if there is none."""
    try:
        return cudnn_version()
    except SdpaEnvironmentError:
        return None
