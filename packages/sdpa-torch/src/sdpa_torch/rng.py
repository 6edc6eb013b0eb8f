"""Seeds of dropout, drawn from torch's generator outside of the operation.

So ``torch.manual_seed`` makes a call repeatable, CUDA graphs and checkpointing treat the seed like
any other random tensor, and vmap follows its ``randomness`` argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

#: Seed and offset that ``fixed`` prescribes, innermost last.
_fixed: list[tuple[int, int]] = []


def draw(device: torch.device) -> tuple[Tensor, Tensor]:
    """A seed and the offset 0, int64 ``[1]`` on a device."""
    if _fixed:
        seed, offset = _fixed[-1]
        return _number(seed, device), _number(offset, device)
    drawn = torch.randint(-(2**63), 2**63 - 1, (1,), dtype=torch.int64, device=device)
    return drawn, _number(0, device)


def _number(value: int, device: torch.device) -> Tensor:
    return torch.full((1,), value, dtype=torch.int64, device=device)


def undrawn(device: torch.device) -> tuple[Tensor, Tensor]:
    """Stand-ins that leave the generator alone, for what runs nothing."""
    seed = torch.empty(1, dtype=torch.int64, device=device)
    return seed, torch.empty_like(seed)


@contextmanager
def fixed(seed: int, offset: int = 0) -> Iterator[None]:
    """Inside, every call has this seed (as int64) and offset, a multiple of 4. For tests."""
    _fixed.append((seed, offset))
    try:
        yield
    finally:
        _fixed.pop()
