"""Problems with nothing to compute: no query, or no key to attend to."""

from __future__ import annotations

import torch
from torch import Tensor

from sdpa_core.problem import Softmax

from . import sequences
from .features import Features

_MINUS_INF = float("-inf")


def results(tensors: tuple[Tensor, ...], features: Features) -> tuple[Tensor, ...]:
    """Zeros, log-sum-exps of no key, and zero gradients for the operands there are."""
    named = dict(zip(features.roles, tensors, strict=True))
    query, value = named["query"], named["value"]
    differentiable = [t for t in tensors if t.is_floating_point()]
    # Sums over nothing: exactly 0, and known to autograd.
    zero = torch.stack([t.flatten()[:0].sum().to(query.dtype) for t in differentiable]).sum()
    output = query.new_zeros(*query.shape[:-1], value.shape[-1]) + zero
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    head_axis = 1
    heads = query.shape[head_axis]
    shape = [heads if axis == head_axis else 1 for axis in range(query.dim())]
    stats = _sinks(named, features, heads, wide).reshape(shape)
    stats = stats.expand(*query.shape[:-1], 1)
    rows = _rows(named, features)
    stats = stats.clone() if rows is None else stats.where(rows, _MINUS_INF)
    if not features.return_max_logit:
        return output, stats
    return output, stats, query.new_full((heads,), _MINUS_INF, dtype=wide)


def _sinks(named: dict[str, Tensor], features: Features, heads: int, wide: torch.dtype) -> Tensor:
    """The log-sum-exp of each head's row without a key."""
    if "sink" in named:
        return named["sink"].detach().to(wide)
    alone = 0.0 if features.softmax is Softmax.OFF_BY_ONE else _MINUS_INF
    return named["query"].new_full((heads,), alone, dtype=wide)


def _rows(named: dict[str, Tensor], features: Features) -> Tensor | None:
    """Which rows belong to a sequence; None: all."""
    query = named["query"]
    if features.max_q is None:
        lengths = named.get("seq_lens_q")
        return None if lengths is None else sequences.rows_within(lengths, query.shape[2])
    if 0 in query.shape[:1] or named["cu_seqlens_q"].shape[0] < 2:
        return torch.zeros(query.shape[0], 1, 1, dtype=torch.bool, device=query.device)
    side = sequences.Side.of(
        named["cu_seqlens_q"],
        named.get("cu_seqlens_q_padded"),
        features.max_q,
        query.shape[0],
    )
    return sequences.places(side).valid[:, None, None]
