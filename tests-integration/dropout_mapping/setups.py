"""The attention calls whose dropout is looked at."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Setup:
    """One attention call. Lengths: of the sequences that are there; None: all as declared."""

    batch: int = 2
    heads: int = 2
    heads_kv: int = 2
    sq: int = 256
    skv: int = 256
    d: int = 64
    dtype: torch.dtype = torch.bfloat16
    p: float = 0.5
    seed: int = 0x1234_5678_9ABC
    offset: int = 16
    left: int | None = None
    right: int | None = None
    bias: bool = False
    lengths: tuple[tuple[int, int], ...] | None = None
    packed: bool = False
    stats: bool = True
    deterministic: bool = False

    @property
    def group(self) -> int:
        return self.heads // self.heads_kv

    @property
    def real(self) -> tuple[tuple[int, int], ...]:
        return self.lengths or ((self.sq, self.skv),) * self.batch

    def starts(self, side: int) -> list[int]:
        """First token of each declared sequence and the end, in a pack."""
        counts = [pair[side] for pair in self.real]
        counts += [0] * (self.batch - len(counts))
        return [0, *itertools.accumulate(counts)]

    def visible(self, b: int, device: torch.device) -> Tensor:
        i = torch.arange(self.real[b][0], device=device)[:, None]
        j = torch.arange(self.real[b][1], device=device)
        seen = (i >= 0) & (j >= 0)
        if self.left is not None:
            seen = seen & (j > i - self.left)
        if self.right is not None:
            seen = seen & (j <= i + self.right)
        return seen
