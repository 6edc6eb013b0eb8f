"""Lengths of sequences, and where packed ones are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .operands import tensor


def lengths_of(name: str, given: Any, beside: Tensor, batch: int) -> Tensor | None:
    """int32 ``[B]``, in tokens."""
    if given is None:
        return None
    lengths = _integers(name, tensor(name, given, beside))
    if tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"{name} has shape {list(lengths.shape)}; expected one length for each sequence, "
            f"[{batch}]"
        )
    return lengths


def full_lengths(batch: int, tokens: int, beside: Tensor) -> Tensor:
    """The lengths of sequences that are all full."""
    return torch.full((batch,), tokens, dtype=torch.int32, device=beside.device)


def cumulative(name: str, given: Any) -> Tensor:
    """``cu_seqlens``: int32 ``[B + 1]``. Its values stay on the device, unread."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name} is a {type(given).__name__}; expected a torch.Tensor")
    cu_seqlens = _integers(name, given)
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(f"{name} has shape {list(cu_seqlens.shape)}; expected [B + 1]")
    return cu_seqlens


def page_table(name: str, given: Any, beside: Tensor, batch: int) -> Tensor:
    """Numbers of pages, int32 ``[B, pages of a sequence]``."""
    table = _integers(name, tensor(name, given, beside))
    if table.dim() != 2 or table.shape[0] != batch:
        raise ValueError(
            f"{name} has shape {list(table.shape)}; expected [B, pages of a sequence], here "
            f"[{batch}, ...]"
        )
    return table


def _integers(name: str, given: Tensor) -> Tensor:
    """What cuDNN reads, int32, of int32 or int64; converted on the device."""
    if given.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} has dtype {given.dtype}; expected torch.int32 or torch.int64")
    return given.to(torch.int32)
