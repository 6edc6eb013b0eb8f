"""Operands of the faults: the same numbers on every machine."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from .machine import Machine

SEED = 20


class Numbers:
    """Tensors on a machine, from one seed."""

    def __init__(self, machine: Machine) -> None:
        self._device = machine.device
        self._generator = torch.Generator().manual_seed(SEED)

    def normal(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        drawn = torch.randn(*shape, generator=self._generator)
        return drawn.to(self._device, dtype)

    def dense(
        self, batch: int, heads: int, heads_kv: int, tokens: int, tokens_kv: int, head_dim: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value and the gradient of the output, ``[B, H, S, D]``."""
        return (
            self.normal(batch, heads, tokens, head_dim),
            self.normal(batch, heads_kv, tokens_kv, head_dim),
            self.normal(batch, heads_kv, tokens_kv, head_dim),
            self.normal(batch, heads, tokens, head_dim),
        )

    def lengths(self, *lengths: int) -> Tensor:
        """int32 ``[B, 1, 1, 1]``."""
        given = torch.tensor(lengths, dtype=torch.int32, device=self._device)
        return given.reshape(-1, 1, 1, 1)

    def cu_seqlens(self, *lengths: int) -> Tensor:
        """int32 ``[B + 1]``."""
        starts = [0, *accumulate(lengths)]
        return torch.tensor(starts, dtype=torch.int32, device=self._device)


def within(lengths: Tensor, tokens: int) -> Tensor:
    """bool ``[B, 1, tokens, 1]``: whether a token belongs to its sequence."""
    positions = torch.arange(tokens, device=lengths.device).reshape(1, 1, -1, 1)
    return positions < lengths


def seen(lengths_q: Tensor, tokens_q: int, lengths_kv: Tensor, tokens_kv: int) -> Tensor:
    """bool ``[B, 1, Sq, Skv]``: whether query and key are both in their sequence."""
    return within(lengths_q, tokens_q) & within(lengths_kv, tokens_kv).mT
