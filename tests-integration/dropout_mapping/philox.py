"""The random bits of places by a hypothesis, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sdpa_core.philox import KEY_STEPS, MASK32, MULTIPLIERS, ROUNDS

from .points import Points


def bits(x: Points, by: dict[str, Callable[..., Any]]) -> Tensor:
    """The 16 bits that decide at each point."""
    i, j = by["row"](x), by["column"](x)
    first, second, shift = by["offset"](x.setup.offset, 8 * by["head"](x) + j % 8)
    word = 2 * (i % 16 // 8) + j % 16 // 8 + shift
    counter = (first + word // 4, second, i // 16 + by["tiles"](x) * (j // 16))
    words = torch.stack(philox(counter, by["seed"](x.setup.seed), i))
    return words.gather(0, (word % 4)[None])[0] >> 16 * (i % 2) & 0xFFFF


def philox(counter: tuple[Any, ...], seed: int, like: Tensor) -> list[Tensor]:
    c0, c1, c2 = (torch.zeros_like(like) + (c & MASK32) for c in counter)
    c3 = torch.zeros_like(like)
    k0, k1 = seed & MASK32, seed >> 32 & MASK32
    for _ in range(ROUNDS):
        p0, p2 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (p2 >> 32 & MASK32) ^ c1 ^ k0,
            p2 & MASK32,
            (p0 >> 32 & MASK32) ^ c3 ^ k1,
            p0 & MASK32,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK32, (k1 + KEY_STEPS[1]) & MASK32
    return [c0, c1, c2, c3]
