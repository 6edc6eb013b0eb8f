"""Which logits of a block are visible."""

from __future__ import annotations

from torch import Tensor

from .blocks import Block
from .operands import Operands


def visible(operands: Operands, block: Block) -> Tensor | None:
    """Boolean, broadcastable to the block's logits ``[B, Hq, n, m]``; None hides nothing."""
    i, j = block.positions(operands.key.device)
    band, conditions = operands.band, []
    if band.left is not None:
        conditions.append(j >= i + operands.shift - band.left)
    if band.right is not None:
        conditions.append(j <= i + operands.shift + band.right)
    if operands.lengths_q is not None:
        conditions.append(i < operands.lengths_q.reshape(-1, 1, 1, 1))
    if operands.lengths_kv is not None:
        conditions.append(j < operands.lengths_kv.reshape(-1, 1, 1, 1))
    result: Tensor | None = None
    for condition in conditions:
        result = condition if result is None else result & condition
    return result
