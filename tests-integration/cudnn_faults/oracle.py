"""Attention and its gradients in float64, by torch's own differentiation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad_output: Tensor,
    scale: float,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    function: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Of ``[B, H, S, D]``; a row that sees no key has output 0 and log-sum-exp -inf.

    Args:
        query, key, value, grad_output: with as many heads each, or fewer of key and value.
        scale: of the logits.
        visible: bool, broadcast over the logits.
        bias: broadcast over the logits; its gradient has its shape.
        sink: ``[1, Hq, 1, 1]``.
        function: of the scaled logits.
    """
    q, k, v, *others = (
        None if one is None else one.detach().double().requires_grad_()
        for one in (query, key, value, bias, sink)
    )
    bias64, sink64 = others
    group = query.shape[1] // key.shape[1]
    logits = scale * q @ k.repeat_interleave(group, 1).mT
    if function is not None:
        logits = function(logits)
    if bias64 is not None:
        logits = logits + bias64
    if visible is not None:
        logits = logits.masked_fill(~visible, -math.inf)
    columns = logits if sink64 is None else torch.cat([logits, _column(sink64, logits)], -1)
    peak = columns.detach().amax(-1, keepdim=True)
    peak = torch.where(peak == -math.inf, 0.0, peak)
    weights = torch.exp(columns - peak)
    total = weights.sum(-1, keepdim=True)
    safe = torch.where(total > 0, total, 1.0)
    output = (weights[..., : logits.shape[-1]] / safe) @ v.repeat_interleave(group, 1)
    output.backward(grad_output.double())
    stats = torch.where(total > 0, torch.log(safe) + peak, -math.inf)
    found = {"O": output.detach(), "LSE": stats.detach(), "dQ": q.grad, "dK": k.grad, "dV": v.grad}
    if bias64 is not None:
        found["dBias"] = bias64.grad
    if sink64 is not None:
        found["dSink"] = sink64.grad
    return found


def _column(sink: Tensor, logits: Tensor) -> Tensor:
    return sink.expand(*logits.shape[:-1], 1)
