"""How the tensors of a call lie in memory, by role."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .setups import Setup


@dataclass(frozen=True)
class Layout:
    dim: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    ragged: str | None = None


def contiguous(dim: tuple[int, ...], dtype: torch.dtype) -> Layout:
    return Layout(dim, torch.empty(dim, device="meta").stride(), dtype)


def layouts(s: Setup) -> dict[str, Layout]:
    """Of every tensor that a call may have, by role."""
    one = (1, 1, 1, 1)
    sides = {"q": (s.heads, s.sq), "k": (s.heads_kv, s.skv)}
    found = {}
    for role, side, ragged in (
        *(("q", "q", "ragged_q"), ("k", "k", "ragged_k"), ("v", "k", "ragged_v")),
        *(("o", "q", "ragged_o"), ("dO", "q", "ragged_o"), ("dQ", "q", "ragged_q")),
        *(("dK", "k", "ragged_k"), ("dV", "k", "ragged_v")),
    ):
        heads, tokens = sides[side]
        dim = (s.batch, heads, tokens, s.d)
        if s.packed:
            row = heads * s.d
            found[role] = Layout(dim, (tokens * row, s.d, row, 1), s.dtype, ragged)
        else:
            found[role] = contiguous(dim, s.dtype)
    return found | {
        "stats": contiguous((s.batch, s.heads, s.sq, 1), torch.float32),
        "bias": contiguous((1, s.heads, s.sq, s.skv), s.dtype),
        "dump": contiguous((s.batch, s.heads, s.sq, s.skv), torch.float32),
        "seed": contiguous(one, torch.int64),
        "offset": contiguous(one, torch.int64),
        "seq_len_q": contiguous((s.batch, 1, 1, 1), torch.int32),
        "seq_len_kv": contiguous((s.batch, 1, 1, 1), torch.int32),
        **{f"ragged_{x}": contiguous((s.batch + 1, 1, 1, 1), torch.int32) for x in "qkvo"},
    }
