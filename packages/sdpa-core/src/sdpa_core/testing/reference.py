"""The oracle: attention and its gradients in float64, written for clarity, one head at a time.

It decides what is right: every backend is compared with it. It stands on the formulas alone and
shares no code with any backend. With ``i`` a query, ``j`` a key it may see and ``c`` the scale::

    S_ij = c * q_i . k_j          LSE_i = log sum_j exp S_ij
    P_ij = exp(S_ij - LSE_i)        O_i = sum_j P_ij v_j

and, for the gradient ``dO`` of the output (Dao et al., "FlashAttention", arXiv:2205.14135,
appendix B)::

    dV_j = sum_i P_ij dO_i        D_i   = sum_j P_ij dO_i . v_j = dO_i . O_i
    dQ_i = c sum_j dS_ij k_j      dS_ij = P_ij (dO_i . v_j - D_i)
    dK_j = c sum_i dS_ij q_i

Query head ``h`` uses key head ``h // (Hq // Hkv)``; ``dK`` and ``dV`` are summed over the query
heads of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..dtypes import DType
from ..mask import Alignment, Band
from ..tensor import TensorSpec
from ..validate import check_operands, default_scale

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Forward(NamedTuple):
    """What a forward pass gives.

    Attributes:
        output: float64 ``[B, Hq, Sq, Dv]``; 0 in a row that sees no key.
        lse: float64 ``[B, Hq, Sq]``, natural logarithm; -inf in a row that sees no key.
    """

    output: Array
    lse: Array


class Gradients(NamedTuple):
    """Gradients in float64, each of its operand's shape."""

    grad_query: Array
    grad_key: Array
    grad_value: Array


class Head(NamedTuple):
    """One query head of one sequence, and where it lies in the operands.

    Attributes:
        query_at: index of ``[Sq, ...]`` in the query, the output and the log-sum-exp.
        key_at: index of ``[Skv, ...]`` in key and value; shared by the heads of a group.
        q, k, v: ``[Sq, D]``, ``[Skv, D]``, ``[Skv, Dv]``.
    """

    query_at: tuple[int, int]
    key_at: tuple[int, int]
    q: Array
    k: Array
    v: Array


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    band: Band | None = None,
    scale: float | None = None,
) -> Forward:
    """``O = softmax(scale * Q K^T, masked by band) V`` in float64.

    What a hidden key or its value holds never reaches a result, NaN and infinities included.

    Args:
        query: ``[B, Hq, Sq, D]``.
        key: ``[B, Hkv, Skv, D]``, ``Hq`` a multiple of ``Hkv``.
        value: ``[B, Hkv, Skv, Dv]``.
        band: which keys a query sees; None: all.
        scale: factor of the logits; None: ``1 / sqrt(D)``.

    Raises:
        ValueError: the shapes do not fit together; the text names the argument.
    """
    q, k, v = _operands(query, key, value)
    scale = default_scale(q.shape[-1]) if scale is None else scale
    visible = visible_pairs(band or Band(), q.shape[2], k.shape[2])
    output = np.zeros((*q.shape[:3], v.shape[-1]))
    lse = np.full(q.shape[:3], -np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        for head in heads(q, k, v):
            p, lse[head.query_at] = probabilities(head.q, head.k, visible, scale)
            output[head.query_at] = weighted_sum(p, visible, head.v)
    return Forward(output, lse)


def attention_backward(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    grad_output: ArrayLike,
    *,
    band: Band | None = None,
    scale: float | None = None,
) -> Gradients:
    """Gradients of ``sum(grad_output * attention(query, key, value).output)`` in float64.

    Args:
        query, key, value, band, scale: as for ``attention``.
        grad_output: ``[B, Hq, Sq, Dv]``.

    Raises:
        ValueError: the shapes do not fit together; the text names the argument.
    """
    q, k, v = _operands(query, key, value)
    grad = np.asarray(grad_output, dtype=np.float64)
    expected = (*q.shape[:3], v.shape[-1])
    if grad.shape != expected:
        raise ValueError(
            f"grad_output has shape {list(grad.shape)}; expected the output's, {list(expected)}"
        )
    scale = default_scale(q.shape[-1]) if scale is None else scale
    visible = visible_pairs(band or Band(), q.shape[2], k.shape[2])
    grad_query, grad_key, grad_value = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        for head in heads(q, k, v):
            d_output = grad[head.query_at]
            p, _ = probabilities(head.q, head.k, visible, scale)
            d_p = np.where(visible, d_output @ head.v.T, 0.0)
            d = np.sum(p * d_p, axis=1, keepdims=True)
            d_s = np.where(visible, scale * p * (d_p - d), 0.0)
            grad_query[head.query_at] = weighted_sum(d_s, visible, head.k)
            grad_key[head.key_at] += weighted_sum(d_s.T, visible.T, head.q)
            grad_value[head.key_at] += weighted_sum(p.T, visible.T, d_output)
    return Gradients(grad_query, grad_key, grad_value)


def visible_pairs(band: Band, sq: int, skv: int) -> Mask:
    """Boolean ``[Sq, Skv]``: which key each query sees."""
    shift = skv - sq if band.alignment is Alignment.BOTTOM_RIGHT else 0
    distance = np.arange(skv) - (np.arange(sq)[:, None] + shift)
    visible = np.ones((sq, skv), dtype=np.bool_)
    if band.left is not None:
        visible &= distance >= -band.left
    if band.right is not None:
        visible &= distance <= band.right
    return visible


def heads(query: Array, key: Array, value: Array) -> Iterator[Head]:
    """Every query head of every sequence with the key head that it uses."""
    batch, count = query.shape[:2]
    group = count // max(key.shape[1], 1)
    for b in range(batch):
        for h in range(count):
            query_at, key_at = (b, h), (b, h // group)
            yield Head(query_at, key_at, query[query_at], key[key_at], value[key_at])


def probabilities(q: Array, k: Array, visible: Mask, scale: float) -> tuple[Array, Array]:
    """``P [Sq, Skv]`` and ``LSE [Sq]`` of one head; a row that sees nothing has 0 and -inf."""
    logits = np.where(visible, scale * (q @ k.T), -np.inf)
    largest = np.max(logits, axis=1, keepdims=True, initial=-np.inf)
    largest[largest == -np.inf] = 0.0
    weights = np.exp(logits - largest)
    total = np.sum(weights, axis=1, keepdims=True)
    seen = total != 0
    lse = np.log(total, out=np.full_like(total, -np.inf), where=seen) + largest
    return np.divide(weights, total, out=weights, where=seen), lse[:, 0]


def weighted_sum(weights: Array, visible: Mask, rows: Array) -> Array:
    """``weights @ rows`` to which a hidden row adds exactly 0, whatever it holds."""
    finite: Mask = np.logical_and.reduce(np.isfinite(rows), axis=1)
    total: Array = weights @ np.where(finite[:, None], rows, 0.0)
    for j in np.flatnonzero(~finite):
        total += np.where(visible[:, j, None], weights[:, j, None] * rows[j], 0.0)
    return total


def _operands(query: ArrayLike, key: ArrayLike, value: ArrayLike) -> tuple[Array, Array, Array]:
    q, k, v = (np.asarray(operand, dtype=np.float64) for operand in (query, key, value))
    check_operands(*(TensorSpec.dense(x.shape, DType.FLOAT64) for x in (q, k, v)))
    return q, k, v
