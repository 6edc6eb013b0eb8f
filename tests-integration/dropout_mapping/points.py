"""Places where a decision was seen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .observations import Observed
from .setups import Setup

SAMPLES = 20_000


@dataclass(frozen=True)
class Points:
    """Places where a decision was seen; each field one-dimensional."""

    setup: Setup
    b: Tensor
    h: Tensor
    i: Tensor
    j: Tensor
    kept: Tensor

    def of_sequence(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self.b.device)[self.b]

    def length(self, side: int) -> Tensor:
        return self.of_sequence([pair[side] for pair in self.setup.real])

    def start(self, side: int) -> Tensor:
        return self.of_sequence(self.setup.starts(side))


def sample(setup: Setup, observed: Observed) -> Points:
    """Random places among those that were seen, as many of each sequence."""
    parts = []
    generator = torch.Generator(observed[0].device).manual_seed(0)
    for b, seen in enumerate(observed):
        count = 4 * SAMPLES // len(observed)
        where = [
            torch.randint(size, (count,), generator=generator, device=seen.device)
            for size in seen.shape
        ]
        kept = seen[tuple(where)]
        parts.append(torch.stack([torch.full_like(where[0], b), *where, kept])[:, kept >= 0])
    return Points(setup, *torch.cat(parts, 1))
