"""The logits of a block from its queries, and the way back from their gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import score_ops
from ..philox import keep_mask
from .blocks import Block, grouped, ungrouped
from .masks import visible
from .operands import Operands


class Logits:
    """The logits ``[B, Hq, n, m]`` of a block: scaled, capped, modified, shifted, hidden.

    Attributes:
        queries: ``scale * Q``, grouped ``[B, Hkv, group * n, D]``.
        final: what the softmax takes; -inf where hidden.
    """

    def __init__(self, operands: Operands, block: Block) -> None:
        self._operands, self._block = operands, block
        query, key = operands.query[:, :, block.rows].to(operands.wide), operands.key
        self.queries = grouped(query, key) * operands.scale
        scores = ungrouped(self.queries @ key[:, :, block.columns].mT, query.shape[1])
        softcap, mod = operands.features.softcap, operands.features.score_mod
        if softcap is not None:
            self._tanh = (scores / softcap).tanh()
            scores = self._tanh * softcap
        if mod is not None:
            self._capped = scores
            scores = self._modified(mod.expression, scores)
        if operands.bias is not None:
            scores = scores + block.of(operands.bias)
        if operands.slopes is not None:
            scores = scores - operands.slopes * self._distances(operands.slopes)
        mask = visible(operands, block)
        self.final = scores if mask is None else scores.masked_fill(~mask, float("-inf"))

    def pull_back(self, grad: Tensor) -> Tensor:
        """The gradient of the scaled logits, grouped, from that of the final ones."""
        mod = self._operands.features.score_mod
        if mod is not None:
            gradient = mod.gradient or score_ops.derivative(mod.expression)
            grad = self._modified(gradient, self._capped, grad)
            # Where nothing is visible the function may have any slope.
            grad = grad.masked_fill(self.final == float("-inf"), 0.0)
        if self._operands.features.softcap is not None:
            grad = grad * (1 - self._tanh * self._tanh)
        return grouped(grad, self._operands.key)

    def dropout(self) -> Tensor | None:
        """The factor of each probability, 0 or ``1 / (1 - p)``; None without dropout."""
        operands, block = self._operands, self._block
        if operands.seed is None or operands.offset is None:
            return None
        batch, heads, tokens_q, _ = operands.query.shape
        p = operands.features.dropout_p
        keep = keep_mask(
            operands.seed,
            operands.offset,
            p,
            batch,
            heads,
            tokens_q,
            (block.rows.start, block.rows.stop),
            (block.columns.start, block.columns.stop),
        )
        return keep.to(operands.wide) / (1 - p)

    def _modified(self, expression: object, score: Tensor, grad: Tensor | None = None) -> Tensor:
        i, j = self._block.positions(score.device)
        tensors = tuple(self._block.of(tensor) for tensor in self._operands.modifiers)
        return score_ops.value(
            expression,  # type: ignore[arg-type]
            score,
            (i.to(torch.int32), j.to(torch.int32)),
            tensors,
            self._operands.numbers,
            grad,
        )

    def _distances(self, slopes: Tensor) -> Tensor:
        """``|i + shift - j|`` in tokens."""
        i, j = self._block.positions(slopes.device)
        return (i + self._operands.shift - j).abs().to(slopes.dtype)
