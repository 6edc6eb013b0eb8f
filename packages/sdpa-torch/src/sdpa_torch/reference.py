"""The reference backend: plain tensor operations, blocked over queries.

Memory grows with the number of tokens, not with its square. Everything is accumulated in
float32 (float64 for float64 inputs) and rounded once at the end. It runs wherever torch does,
also under functorch transforms and tracing, and mirrors ``sdpa_jax.reference`` step by step.
There must be at least one query and one key; ``functional`` answers empty problems itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from sdpa_core import Band

#: Query rows that are processed together.
BLOCK = 256


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _without_autocast(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Autocast would round the matrix products of a float32 computation to 16 bits again."""

    @wraps(function)
    def exact(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        kind = args[0].device.type  # type: ignore[attr-defined]
        if kind == "meta" or not torch.is_autocast_enabled(kind):
            return function(*args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(*args, **kwargs)

    return exact


@_without_autocast
def forward(
    query: Tensor, key: Tensor, value: Tensor, band: Band, scale: float
) -> tuple[Tensor, Tensor]:
    """``O = softmax(scale * Q K^T) V`` and the log-sum-exp of each row.

    Args:
        query: ``[B, Hq, Sq, D]``; key ``[B, Hkv, Skv, D]``; value ``[B, Hkv, Skv, Dv]``.

    Returns:
        ``[B, Hq, Sq, Dv]`` in the query's type, and ``[B, Hq, Sq, 1]`` in the type of
        accumulation. A row that sees no key has O = 0 and log-sum-exp = -inf.
    """
    wide = _accumulation_type(query)
    keys, values = key.to(wide), value.to(wide)
    outputs, stats = [], []
    for rows, columns, visible in _blocks(query, key, band):
        queries = _grouped(query[:, :, rows].to(wide), key) * scale
        logits = queries @ keys[:, :, columns].mT
        logits = _hide(logits, visible, query, key)
        peak = _finite(logits.amax(-1, keepdim=True))
        weights = (logits - peak).exp()
        total = weights.sum(-1, keepdim=True)
        output = (weights @ values[:, :, columns]) / total.where(total > 0, 1.0)
        outputs.append(_ungrouped(output, query))
        stats.append(_ungrouped(peak + total.log(), query))
    return torch.cat(outputs, 2).to(query.dtype), torch.cat(stats, 2)


@_without_autocast
def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    stats: Tensor,
    grad_output: Tensor,
    band: Band,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``forward``'s output, from the probabilities recomputed block by block.

    With ``P = exp(S - lse)`` and ``delta = rowsum(dO * O)``: ``dV = P^T dO``,
    ``dS = P * (dO V^T - delta)``, ``dQ = scale * dS K``, ``dK = dS^T (scale * Q)``
    (FlashAttention-2, Dao 2023, section 3.1).
    """
    wide = _accumulation_type(query)
    keys, values = key.to(wide), value.to(wide)
    grad_queries = []
    grad_key, grad_value = torch.zeros_like(keys), torch.zeros_like(values)
    for rows, columns, visible in _blocks(query, key, band):
        queries = _grouped(query[:, :, rows].to(wide), key) * scale
        incoming = _grouped(grad_output[:, :, rows].to(wide), key)
        outgoing = _grouped(output[:, :, rows].to(wide), key)
        logits = queries @ keys[:, :, columns].mT
        logits = _hide(logits, visible, query, key)
        weights = (logits - _finite(_grouped(stats[:, :, rows].to(wide), key))).exp()
        delta = (incoming * outgoing).sum(-1, keepdim=True)
        grad_logits = weights * (incoming @ values[:, :, columns].mT - delta)
        grad_queries.append(_ungrouped(grad_logits @ keys[:, :, columns] * scale, query))
        grad_key = _add_rows(grad_key, grad_logits.mT @ queries, columns)
        grad_value = _add_rows(grad_value, weights.mT @ incoming, columns)
    grad_query = torch.cat(grad_queries, 2).to(query.dtype)
    return grad_query, grad_key.to(key.dtype), grad_value.to(value.dtype)


def _accumulation_type(query: Tensor) -> torch.dtype:
    return torch.float64 if query.dtype == torch.float64 else torch.float32


def _blocks(query: Tensor, key: Tensor, band: Band) -> Iterator[tuple[slice, slice, Tensor | None]]:
    """Blocks of query rows with the columns any of them sees; None hides nothing inside."""
    tokens_q, tokens_kv = query.shape[2], key.shape[2]
    left, right = band.limits(tokens_q, tokens_kv)
    for start in range(0, tokens_q, BLOCK):
        stop = min(start + BLOCK, tokens_q)
        first = 0 if left is None else min(max(start - left, 0), tokens_kv)
        last = tokens_kv if right is None else min(max(stop + right, 0), tokens_kv)
        if last <= first:
            first, last = 0, 1  # no row of the block sees a key: one hidden column stands for all
        yield (
            slice(start, stop),
            slice(first, last),
            _visible((start, stop), (first, last), left, right, key.device),
        )


def _visible(
    rows: tuple[int, int],
    columns: tuple[int, int],
    left: int | None,
    right: int | None,
    device: torch.device,
) -> Tensor | None:
    if left is None and right is None:
        return None
    i = torch.arange(*rows, device=device)[:, None]
    j = torch.arange(*columns, device=device)
    visible = torch.ones(
        rows[1] - rows[0], columns[1] - columns[0], dtype=torch.bool, device=device
    )
    if left is not None:
        visible = visible & (j >= i - left)
    if right is not None:
        visible = visible & (j <= i + right)
    return visible


def _grouped(tensor: Tensor, key: Tensor) -> Tensor:
    """``[B, Hq, n, D]`` as ``[B, Hkv, group * n, D]``: key heads are never repeated."""
    batch, _, rows, head_dim = tensor.shape
    heads_kv = max(key.shape[1], 1)
    return tensor.reshape(batch, heads_kv, tensor.shape[1] // heads_kv * rows, head_dim)


def _ungrouped(tensor: Tensor, query: Tensor) -> Tensor:
    batch, heads_kv, grouped_rows, head_dim = tensor.shape
    heads = query.shape[1]
    rows = grouped_rows * heads_kv // heads if heads else 0
    return tensor.reshape(batch, heads, rows, head_dim)


def _hide(logits: Tensor, visible: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    if visible is None:
        return logits
    group = query.shape[1] // max(key.shape[1], 1)
    return logits.masked_fill(~visible.repeat(group, 1), float("-inf"))


def _finite(peak: Tensor) -> Tensor:
    """-inf (a row without visible keys) as 0, so that no difference of infinities arises."""
    return peak.where(peak > float("-inf"), 0.0)


def _add_rows(total: Tensor, block: Tensor, columns: slice) -> Tensor:
    """Out of place, because vmap forbids writing a batched block into an unbatched total."""
    after = total.shape[2] - columns.stop
    return total + torch.nn.functional.pad(block, (0, 0, columns.start, after))
