"""What hides or shifts logits: causal masks and windows, masks and biases, ALiBi."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sdpa_core import Alignment, Band, flag
from sdpa_core.validate import shown

from .numbers import count
from .operands import shape, tensor

#: The corner matters to a band without bounds too: ALiBi measures from the diagonal.
_FULL = {str(alignment): Band(alignment=alignment) for alignment in Alignment}
_CAUSAL = {str(alignment): Band.causal(alignment) for alignment in Alignment}


def band_of(is_causal: bool, causal_alignment: str, window: Any = None) -> Band:
    is_causal = flag("is_causal", is_causal)
    if not isinstance(causal_alignment, str) or causal_alignment not in _CAUSAL:
        raise ValueError(
            f"causal_alignment = {causal_alignment!r}; expected one of {', '.join(_CAUSAL)}"
        )
    causal = _CAUSAL[causal_alignment]
    if window is None:
        return causal if is_causal else _FULL[causal_alignment]
    left, right = _bounds(window)
    if is_causal:
        if right not in (None, 0):
            raise ValueError(
                f"window = {shown(window, repr)} with is_causal=True; its right bound must be "
                f"None or 0"
            )
        right = 0
    return Band(left, right, causal.alignment)


def _bounds(window: Any) -> tuple[int | None, int | None]:
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(
            f"window is {shown(window, repr)}; expected (left, right), in tokens, or None"
        )
    left, right = (
        None if bound is None else count(f"window[{number}]", bound, "an int, in tokens, or None")
        for number, bound in enumerate(window)
    )
    return left, right


def bias_of(attn_mask: Any, query: Tensor, key: Tensor, leading: tuple[int, ...]) -> Tensor | None:
    """``[1 or B, 1 or Hq, 1 or Sq, Skv]``, added to the logits, from a mask or a bias.

    Args:
        query, key: folded, ``[B, H, S, D]``.
        leading: the output's leading axes, which fold into ``B`` and ``Hq``.

    Raises:
        TypeError: neither boolean, nor of the query's type or float32.
        ValueError: it does not broadcast to the logits.
    """
    if attn_mask is None:
        return None
    full = (*leading, query.shape[2], key.shape[2])
    given = tensor("attn_mask", attn_mask, query, "bools or numbers, broadcastable to logits", full)
    bias = _added(given, query)
    if bias.dim() > len(full) or any(
        ours not in (1, theirs)
        for ours, theirs in zip(reversed(bias.shape), reversed(full), strict=False)
    ):
        raise ValueError(
            f"attn_mask has shape {list(given.shape)}, which does not broadcast to the logits, "
            f"{list(full)}"
        )
    return _folded(bias, query, key, leading)


def _added(given: Tensor, query: Tensor) -> Tensor:
    """A mask as 0 and -inf in the query's type; a bias as it is."""
    if given.dtype == torch.bool:
        zeros = torch.zeros(given.shape, dtype=query.dtype, device=query.device)
        return zeros.masked_fill(~given, -math.inf)
    if given.dtype in (query.dtype, torch.float32):
        return given
    kind = query.device.type
    half = given.dtype in (torch.float16, torch.bfloat16)
    if half and kind != "meta" and torch.is_autocast_enabled(kind):
        return given.to(query.dtype)
    expected = " or ".join(dict.fromkeys((str(query.dtype), "torch.float32")))
    raise TypeError(f"attn_mask has dtype {given.dtype}; expected torch.bool, or {expected}")


def _folded(bias: Tensor, query: Tensor, key: Tensor, leading: tuple[int, ...]) -> Tensor:
    """Rank 4, the batch axes as one, all keys there."""
    batch = leading[:-1]
    shape = (1,) * (len(leading) + 2 - bias.dim()) + tuple(bias.shape)
    bias = bias.reshape(shape) if len(shape) != bias.dim() else bias
    axes = len(batch)
    if axes != 1:
        if all(n == 1 for n in shape[:axes]):
            bias = bias.reshape(1, *_last_three(shape[axes:]))
        else:
            tail = shape[axes:]
            bias = bias.expand(*batch, *tail).reshape(query.shape[0], *_last_three(tail))
    return bias.expand(*bias.shape[:3], key.shape[2])


def _last_three(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Heads, rows and columns; an operand of rank 2 has one head."""
    return (1,) * (3 - len(shape)) + shape


def slopes_of(alibi: Any, query: Tensor, batch: int) -> tuple[bool, Tensor | None]:
    """Whether the standard slopes are wanted, or the caller's, float32 ``[1 or B, Hq, 1, 1]``."""
    heads = query.shape[1]
    if not isinstance(alibi, Tensor):
        try:
            return flag("alibi", alibi), None
        except TypeError:
            raise TypeError(
                f"alibi is a {type(alibi).__name__}; expected True or False, or slopes, a "
                f"torch.Tensor [Hq] or [B, Hq], here [{heads}] or [{batch}, {heads}]"
            ) from None
    slopes = tensor("alibi", alibi, query, "slopes")
    if not slopes.is_floating_point():
        raise TypeError(f"alibi has dtype {slopes.dtype}; slopes are floating-point numbers")
    shape("alibi", slopes, (heads,), (batch, heads), axes="slopes [Hq] or [B, Hq]")
    if slopes.requires_grad:
        raise ValueError("alibi requires a gradient; slopes have none: detach() them")
    return False, slopes.to(torch.float32).reshape(-1, heads, 1, 1)
