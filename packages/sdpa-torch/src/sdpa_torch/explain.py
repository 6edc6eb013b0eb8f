"""What a call would do, without doing it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from sdpa_core import Decision, DeviceSpec, decide, flag
from sdpa_core.cudnn.session import cudnn_version
from sdpa_core.errors import SdpaEnvironmentError
from sdpa_core.layout import dense_like, row_major

from . import attend, dispatch, rng, router
from .arguments import numbers
from .convert import is_regular
from .dense import dense
from .features import Features
from .functional import scaled_dot_product_attention
from .paged import paged, paged_attention
from .request import Request, as_trained
from .specs import Raw, as_read, problem_of
from .varlen import varlen, varlen_attention


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
    backend: str | None = None,
    training: bool | None = None,
    device: str | torch.device | DeviceSpec | None = None,
    probe: bool = False,
    **options: Any,
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
    operands = (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    arguments = _bound(scaled_dot_product_attention, operands, options)
    call = dense(**arguments, draw=rng.undrawn)
    return _decision(call.request, backend, training, device, probe)


def explain_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor | None = None,
    cu_seq_k: Tensor | None = None,
    max_q: int | None = None,
    max_k: int | None = None,
    *,
    backend: str | None = None,
    training: bool | None = None,
    device: str | torch.device | DeviceSpec | None = None,
    probe: bool = False,
    **options: Any,
) -> Decision:
    """The same for ``varlen_attention``."""
    operands = (query, key, value, cu_seq_q, cu_seq_k, max_q, max_k)
    request = varlen(**_bound(varlen_attention, operands, options), draw=rng.undrawn)
    return _decision(request, backend, training, device, probe)


def explain_paged(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    page_table: Tensor,
    seq_lens_kv: Tensor,
    *,
    backend: str | None = None,
    device: str | torch.device | DeviceSpec | None = None,
    probe: bool = False,
    **options: Any,
) -> Decision:
    """The same for ``paged_attention``."""
    operands = (query, key_pages, value_pages, page_table, seq_lens_kv)
    request = paged(**_bound(paged_attention, operands, options))
    return _decision(request, backend, False, device, probe)


def _bound(
    function: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]
) -> dict[str, Any]:
    """All arguments of a call by name, but for ``backend``."""
    known = signature(function)
    for name in options:
        if name not in known.parameters:
            raise TypeError(f"sdpa_torch.{function.__name__} has no argument {name!r}")
    bound = known.bind(*operands, **options)
    bound.apply_defaults()
    return {name: x for name, x in bound.arguments.items() if name != "backend"}


def _decision(
    request: Request, backend: str | None, training: bool | None, device: Any, probe: bool
) -> Decision:
    spec = _resolve(device)
    tensors, _, options = request.call()
    if training is not None:
        options = as_trained(options, flag("training", training))
    features = options[0]
    named = dict(zip(features.roles, tensors, strict=True))
    against = router.reasons(named) if spec is None else ()
    spec = spec or attend.environment.device_spec(tensors[0].device)
    operands = tuple((tuple(t.shape), tuple(t.stride()), t.dtype) for t in tensors)
    if spec.platform == "cuda":
        operands = _as_copied(operands, features)
    return decide(
        problem_of(operands, options),
        spec,
        backend=numbers.backend_of(backend),
        probe=probe,
        known=dispatch.callable_now(attend.environment),
        against=(*dispatch.elsewhere(backend, spec), *against),
    )


def _as_copied(operands: tuple[Raw, ...], features: Features) -> tuple[Raw, ...]:
    """The operands as native code gets them: see ``attend.readable``."""
    read = as_read(operands, features)
    return tuple(_readable(role, raw) for role, raw in zip(features.roles, read, strict=True))


def _readable(role: str, raw: Raw) -> Raw:
    shape, strides, dtype = raw
    if role in ("query", "key", "value"):
        in_place = is_regular(shape, strides, dtype.itemsize)
        return raw if in_place else (shape, dense_like(shape, shape, strides), dtype)
    in_place = shape[-1:] == (1,) or strides[-1:] == (1,)
    return raw if in_place else (shape, row_major(shape), dtype)


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
