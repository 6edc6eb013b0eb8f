"""The backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import sequences
from ..features import Features
from . import operands as _operands
from .blocks import Block, add_rows, blocks, grouped, ungrouped
from .exact import finite, without_autocast
from .logits import Logits
from .operands import Operands


@without_autocast
def backward(
    tensors: tuple[Tensor, ...],
    scalars: tuple[float, ...],
    features: Features,
    further: tuple[str, ...] = (),
) -> tuple[Tensor, ...]:
    """Gradients of ``forward``'s output, from the probabilities recomputed block by block.

    With ``P = exp(S - lse)``, dropout's factor ``M`` and ``delta = rowsum(dO * O)``:
    ``dV = (P * M)^T dO``, ``dS = P * (M * dO V^T - delta)``, ``dQ = scale * dS K``,
    ``dK = dS^T (scale * Q)`` (FlashAttention-2, Dao 2023, section 3.1); the bias has the gradient
    ``dS``, and the sink, one more key whose value is 0, ``-sum exp(sink - lse) * delta``.

    Args:
        tensors: those of ``forward``, then its output and stats, and the output's gradient.
        further: the operands besides query, key and value whose gradients are wanted, ``"bias"``
            and ``"sink"``.

    Returns:
        Gradients of query, key, value and the ``further`` ones, of their shapes and types.
    """
    inputs, (output, stats, grad_output) = tensors[:-3], tensors[-3:]
    o = _operands.operands(inputs, scalars, features)
    output, stats, grad_output = o.rows(output), o.rows(stats, float("-inf")), o.rows(grad_output)
    heads = o.query.shape[1]
    grad_queries, grad_sinks, grad_bias = [], [], _BiasGradient(o)
    grad_key, grad_value = torch.zeros_like(o.key), torch.zeros_like(o.value)
    for block in blocks(o):
        incoming = grad_output[:, :, block.rows].to(o.wide)
        outgoing = output[:, :, block.rows].to(o.wide)
        lse = stats[:, :, block.rows].to(o.wide)
        logits = Logits(o, block)
        weights = _normalized((logits.final - finite(lse)).exp(), lse, o.sink)
        delta = (incoming * outgoing).sum(-1, keepdim=True)
        incoming = grouped(incoming, o.key)
        grad_weights = ungrouped(incoming @ o.value[:, :, block.columns].mT, heads)
        kept, dropped = logits.dropout(), weights
        if kept is not None:
            grad_weights, dropped = grad_weights * kept, weights * kept
        grad_logits = weights * (grad_weights - delta)
        if "bias" in further:
            grad_bias.add(grad_logits, block)
        if "sink" in further and o.sink is not None:
            share = (o.sink - finite(lse)).exp() * delta
            # Rows past a sequence's length have no sink either.
            share = share.where(lse > float("-inf"), 0.0)
            grad_sinks.append(share.sum((0, 2, 3)))
        grad_scores = logits.pull_back(grad_logits)
        grad_query = grad_scores @ o.key[:, :, block.columns] * o.scale
        grad_queries.append(ungrouped(grad_query, heads))
        grad_key = add_rows(grad_key, grad_scores.mT @ logits.queries, block.columns)
        grad_value = add_rows(grad_value, grouped(dropped, o.key).mT @ incoming, block.columns)
    named = dict(zip(features.roles, inputs, strict=True))
    grads = {
        "query": _like_packed(torch.cat(grad_queries, 2), o.side_q),
        "key": _like_packed(grad_key, o.side_kv),
        "value": _like_packed(grad_value, o.side_kv),
        "bias": grad_bias.total,
        "sink": -torch.stack(grad_sinks).sum(0) if grad_sinks else None,
    }
    wanted = ("query", "key", "value", *further)
    return tuple(grads[name].to(named[name].dtype) for name in wanted)  # type: ignore[union-attr]


#: Beyond it float32 holds the log-sum-exp too coarsely for probabilities that add up to 1.
_COARSE = 2.0**20


def _normalized(weights: Tensor, lse: Tensor, sink: Tensor | None) -> Tensor:
    """Probabilities, those of rows with a coarse log-sum-exp divided by their sum.

    So is a row where every key has the lowest finite number for a bias: adding the logarithm of
    the number of keys changes nothing there.
    """
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink - finite(lse)).exp()
    coarse = (lse.abs() > _COARSE) & (total > 0) & (lse > float("-inf"))
    return weights / total.where(coarse, 1.0)


class _BiasGradient:
    """``dS`` summed over the axes along which the bias is repeated, block by block."""

    def __init__(self, operands: Operands) -> None:
        self._shape = () if operands.bias is None else tuple(operands.bias.shape)
        self._tokens = operands.query.shape[2], operands.key.shape[2]
        self._rows: list[Tensor] = []

    def add(self, grad: Tensor, block: Block) -> None:
        batch, heads, rows, columns = self._shape
        repeated = [axis for axis, n in enumerate((batch, heads, rows)) if n == 1]
        if columns == 1:
            repeated.append(3)
        if repeated:
            grad = grad.sum(repeated, keepdim=True)
        if columns != 1:
            after = self._tokens[1] - block.columns.stop
            grad = torch.nn.functional.pad(grad, (block.columns.start, after))
        self._rows.append(grad)

    @property
    def total(self) -> Tensor | None:
        if not self._rows:
            return None
        if self._shape[2] == 1:
            return torch.stack(self._rows).sum(0)
        return torch.cat(self._rows, 2)


def _like_packed(grad: Tensor, side: sequences.Side | None) -> Tensor:
    return grad if side is None else sequences.packed(grad, sequences.places(side))
