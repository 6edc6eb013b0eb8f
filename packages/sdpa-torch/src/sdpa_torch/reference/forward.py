"""The forward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import sequences
from ..features import Features
from . import operands as _operands
from .blocks import blocks, grouped, ungrouped
from .exact import finite, without_autocast
from .logits import Logits

_MINUS_INF = float("-inf")


@without_autocast
def forward(
    tensors: tuple[Tensor, ...], scalars: tuple[float, ...], features: Features
) -> tuple[Tensor, ...]:
    """``O = dropout(softmax(S)) V`` and the log-sum-exp of each row of logits ``S``.

    Args:
        tensors: named by ``features.roles``.
        scalars: the scale, then the numbers of ``score_mod``.

    Returns:
        Output ``[B, Hq, Sq, Dv]`` (``[tokens, Hq, Dv]`` packed) in the query's type; stats
        ``[B, Hq, Sq, 1]`` (``[tokens, Hq, 1]``) in the type of accumulation; and, if asked for,
        the largest visible logit ``[Hq]``. A row that sees no key has O = 0 and log-sum-exp -inf,
        or that of its sink alone; one past its sequence's length O = 0 and -inf.
    """
    o = _operands.operands(tensors, scalars, features)
    heads = o.query.shape[1]
    outputs, stats, largest = [], [], []
    for block in blocks(o):
        logits = Logits(o, block)
        peak = logits.final.amax(-1, keepdim=True)
        if features.return_max_logit:
            largest.append(peak.amax((0, 2, 3)))
        if o.sink is not None:
            peak = torch.maximum(peak, o.sink)
        peak = finite(peak)
        weights = (logits.final - peak).exp()
        total = weights.sum(-1, keepdim=True)
        if o.sink is not None:
            total = total + (o.sink - peak).exp()
        kept = logits.dropout()
        weights = weights if kept is None else weights * kept
        output = grouped(weights, o.key) @ o.value[:, :, block.columns]
        outputs.append(ungrouped(output, heads) / total.where(total > 0, 1.0))
        stats.append(peak + total.log())
    output, lse = torch.cat(outputs, 2).to(o.query.dtype), torch.cat(stats, 2)
    if o.lengths_q is not None:
        lse = lse.where(sequences.rows_within(o.lengths_q, lse.shape[2]), _MINUS_INF)
    if o.side_q is not None:
        places = sequences.places(o.side_q)
        output, lse = sequences.packed(output, places), sequences.packed(lse, places, _MINUS_INF)
    if not features.return_max_logit:
        return output, lse
    return output, lse, torch.stack(largest).amax(0)
