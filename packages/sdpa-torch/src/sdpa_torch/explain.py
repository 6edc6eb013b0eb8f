"""What a call would do, without doing it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdpa_core import Decision, DeviceSpec, decide
from sdpa_core.cudnn.session import cudnn_version
from sdpa_core.errors import SdpaEnvironmentError

from . import functional


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    enable_gqa: bool = False,
    causal_alignment: str = "top_left",
    return_lse: bool = False,
    deterministic: bool | None = None,
    backend: str | None = None,
    training: bool | None = None,
    device: str | DeviceSpec | None = None,
    probe: bool = False,
    scale: float | None = None,
    **pending: Any,
) -> Decision:
    """The backends that ``scaled_dot_product_attention`` would use, and why not the others.

    Takes the call's arguments and runs nothing; meta tensors will do. ``print`` it.

    Args:
        training: whether a backward pass follows; by default as the operands' ``requires_grad``.
        device: decide for this device instead of the operands': a name such as ``"h200"``
            (``sdpa_core.device_names()``), or a description.
        probe: let cuDNN plan the graph, which may take seconds, instead of trusting our rules.
            Works for a GPU that is not here, with the cuDNN that is.

    Raises:
        TypeError, ValueError: as the call itself.
        NoBackendError: an argument that is not implemented yet, as the call itself.
    """
    functional.check_pending(pending)
    problem = functional.problem_of(
        query,
        key,
        value,
        is_causal=is_causal,
        enable_gqa=enable_gqa,
        causal_alignment=causal_alignment,
        return_lse=return_lse,
        deterministic=deterministic,
        training=training,
    )
    functional.check_scale(scale, problem.query.shape[-1])
    environment = functional.environment
    spec = _resolve(device, query.device, environment)
    return decide(problem, spec, backend=backend, probe=probe, known=environment.known())


def _resolve(device: str | DeviceSpec | None, where: torch.device, environment: Any) -> DeviceSpec:
    if device is None:
        found: DeviceSpec = environment.device_spec(where)
        return found
    return (
        DeviceSpec.named(device, cudnn_version=_installed()) if isinstance(device, str) else device
    )


def _installed() -> int | None:
    """The cuDNN of this machine, for a device known by name alone; None if there is none."""
    try:
        return cudnn_version()
    except SdpaEnvironmentError:
        return None
