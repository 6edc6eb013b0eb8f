"""What the public functions take, checked and in one spelling; every error names the argument."""

from __future__ import annotations

from numbers import Real
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from sdpa_core import Alignment, Band, default_scale, flag
from sdpa_core.pending import PENDING, refuse_pending

NAME = "sdpa_torch.scaled_dot_product_attention"

#: Arguments of it that must have these values for now, in the order of the signature.
_PENDING = {
    name: PENDING[name]
    for name in (
        "attn_mask",
        "window",
        "softmax",
        "sink",
        "softcap",
        "alibi",
        "score_mod",
        "score_mod_bprop",
        "score_mod_args",
        "seq_lens_q",
        "seq_lens_kv",
        "layout",
        "return_max_logit",
        "recipe",
        "slack_is_finite",
    )
}


def refuse_implemented_later(dropout_p: float, pending: tuple[object, ...]) -> None:
    """Refuse a call whose pending arguments, in the order of the signature, are not all default.

    Comparing identities first keeps the common call at a fraction of a microsecond.
    """
    dropped = type(dropout_p) is not float or dropout_p
    if dropped or any(map(is_not, pending, _PENDING.values())):
        given = dict(zip(_PENDING, pending, strict=True))
        refuse_pending(NAME, {"dropout_p": dropout_p, **given})


def check_pending(given: dict[str, Any]) -> None:
    """Refuse arguments that are not implemented yet, and those that do not exist."""
    for name in given:
        if name not in _PENDING and name != "dropout_p":
            raise TypeError(f"{NAME} has no argument {name!r}")
    refuse_pending(NAME, given)


def tensors(query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The operands, as autocast wants them, if they are strided tensors on one device."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
        if tensor.is_nested:
            raise TypeError(f"{name} is a nested tensor; expected a dense one")
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name} has layout {tensor.layout}; expected a strided tensor")
        if tensor.device != query.device:
            raise ValueError(
                f"{name} is on {tensor.device}, query is on {query.device}; "
                f"query, key and value must be on one device"
            )
    kind = query.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return query, key, value
    dtype = torch.get_autocast_dtype(kind)
    return _autocast(query, dtype), _autocast(key, dtype), _autocast(value, dtype)


def _autocast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """What autocast makes of an operand of ``F.scaled_dot_product_attention``."""
    eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(dtype) if eligible else tensor


_FULL = Band()
_CAUSAL = {str(alignment): Band.causal(alignment) for alignment in Alignment}


def band_of(is_causal: bool, causal_alignment: str) -> Band:
    is_causal = flag("is_causal", is_causal)
    if not isinstance(causal_alignment, str) or causal_alignment not in _CAUSAL:
        raise ValueError(
            f"causal_alignment = {causal_alignment!r}; expected one of {', '.join(_CAUSAL)}"
        )
    return _CAUSAL[causal_alignment] if is_causal else _FULL


def is_deterministic(deterministic: bool | None) -> bool:
    if deterministic is None:
        return torch.are_deterministic_algorithms_enabled()
    return flag("deterministic", deterministic)


def scale_of(scale: Any, head_dim: int) -> float:
    """The scale as a float: ``1 / sqrt(head_dim)`` if None."""
    if scale is None:
        return default_scale(head_dim)
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise TypeError(f"scale is a {type(scale).__name__}; expected a number")
    try:
        return float(scale)
    except OverflowError:
        raise ValueError(f"scale = {scale}; expected a finite number") from None
