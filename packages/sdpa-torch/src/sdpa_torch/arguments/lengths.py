"""Lengths of sequences, and where packed ones are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .operands import shape, tensor


def lengths_of(name: str, given: Any, beside: Tensor, batch: int) -> Tensor | None:
    """int32 ``[B]``, in tokens."""
    if given is None:
        return None
    axes = "one length for each sequence"
    lengths = _integers(name, given, beside, axes, (batch,))
    return shape(name, lengths, (batch,), axes=axes)


def full_lengths(batch: int, tokens: int, beside: Tensor) -> Tensor:
    """The lengths of sequences that are all full."""
    return torch.full((batch,), tokens, dtype=torch.int32, device=beside.device)


def cumulative(name: str, given: Any) -> Tensor:
    """``cu_seqlens``: int32 ``[B + 1]``. Its values stay on the device, unread."""
    cu_seqlens = _integers(name, given, given, "[B + 1]")
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(f"{name} has shape {list(cu_seqlens.shape)}; expected [B + 1]")
    return cu_seqlens


def page_table(name: str, given: Any, beside: Tensor, batch: int) -> Tensor:
    """Numbers of pages, int32 ``[B, pages of a sequence]``."""
    table = _integers(name, given, beside, "[B, pages of a sequence]")
    if table.dim() != 2 or table.shape[0] != batch:
        raise ValueError(
            f"{name} has shape {list(table.shape)}; expected [B, pages of a sequence], here "
            f"[{batch}, ...]"
        )
    return table


def _integers(name: str, given: Any, beside: Any, axes: str, *shapes: tuple[int, ...]) -> Tensor:
    """What cuDNN reads, int32, of int32 or int64; converted on the device.

    What int32 cannot hold becomes its nearest number: a length of 2**32 + 1 is long, not 1.
    """
    integers = tensor(name, given, beside, f"int32 or int64, {axes}", *shapes)
    if integers.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} has dtype {integers.dtype}; expected torch.int32 or torch.int64")
    if integers.dtype == torch.int64:
        integers = integers.clamp(-(2**31), 2**31 - 1)
    return integers.to(torch.int32)
