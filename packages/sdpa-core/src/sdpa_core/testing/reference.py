"""The oracle: attention and its gradients in float64, written for clarity, one head at a time.

It decides what is right: every backend is compared with it. It stands on the formulas alone and
shares no code with any backend. With ``i`` a query, ``j`` a key it may see, ``c`` the scale, ``f``
what changes the logits (softcap, then score_mod), ``b_ij`` what is added to them (bias, ALiBi), and
``m_ij`` dropout's factor, 0 or ``1 / (1 - p)``::

    S_ij = f(c * q_i . k_j) + b_ij      LSE_i = log (sum_j exp S_ij [+ 1, or + exp(sink)])
    P_ij = exp(S_ij - LSE_i)              O_i = sum_j P_ij m_ij v_j

and, for the gradient ``dO`` of the output (Dao et al., "FlashAttention", arXiv:2205.14135,
appendix B; the sink is one more key, whose value is 0)::

    dV_j = sum_i P_ij m_ij dO_i         D_i   = sum_j P_ij m_ij dO_i . v_j = dO_i . O_i
    dS_ij = P_ij (m_ij dO_i . v_j - D_i)
    dbias = dS, summed over the axes along which the bias is repeated
    dsink = - sum_i exp(sink - LSE_i) D_i, summed over the sequences
    dQ_i = c sum_j dS_ij f'_ij k_j       dK_j = c sum_i dS_ij f'_ij q_i

Query head ``h`` uses key head ``h // (Hq // Hkv)``; ``dK`` and ``dV`` are summed over the query
heads of a group. A sequence has the queries and keys that its lengths say; see ``logits``.
"""

from __future__ import annotations

from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..dtypes import DType
from ..problem import Softmax
from ..tensor import TensorSpec
from ..validate import check_operands
from .logits import Array, Attended, Features, Head, Logits, Mask


class Forward(NamedTuple):
    """What a forward pass gives.

    Attributes:
        output: float64 ``[B, Hq, Sq, Dv]``; 0 in a row that sees no key, or is past the length.
        lse: float64 ``[B, Hq, Sq]``, natural logarithm, the sink included. In a row that sees no
            key -inf, or the sink's logit; -inf past the length.
        max_logit: float64 ``[Hq]``, the largest visible logit, the sink left out; -inf if none.
    """

    output: Array
    lse: Array
    max_logit: Array


class Gradients(NamedTuple):
    """Gradients in float64, each of its operand's shape; None where there is no such operand."""

    grad_query: Array
    grad_key: Array
    grad_value: Array
    grad_bias: Array | None = None
    grad_sink: Array | None = None


def attention(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, **features: Unpack[Features]
) -> Forward:
    """Attention in float64.

    What a hidden key or its value holds never reaches a result, NaN and infinities included.

    Args:
        query: ``[B, Hq, Sq, D]``.
        key: ``[B, Hkv, Skv, D]``, ``Hq`` a multiple of ``Hkv``.
        value: ``[B, Hkv, Skv, Dv]``.
        features: see ``Features``.

    Raises:
        ValueError: the shapes do not fit together; the text names the argument.
    """
    call = attended(query, key, value, features)
    shape = call.q.shape[:3]
    output, lse = np.zeros((*shape, call.v.shape[-1])), np.full(shape, -np.inf)
    max_logit = np.full(shape[1], -np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        for head in call.heads():
            logits = Logits.of(head, call)
            p, lse[head.query_at] = probabilities(logits.final, head.sink)
            output[head.query_at] = weighted_sum(head.with_dropout(p), logits.visible, head.v)
            largest = np.max(logits.final, initial=-np.inf)
            max_logit[head.at.head] = np.maximum(max_logit[head.at.head], largest)
    return Forward(output, lse, max_logit)


def attention_backward(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    grad_output: ArrayLike,
    **features: Unpack[Features],
) -> Gradients:
    """Gradients of ``sum(grad_output * attention(query, key, value).output)`` in float64.

    Args:
        query, key, value, features: as for ``attention``.
        grad_output: ``[B, Hq, Sq, Dv]``.

    Raises:
        ValueError: the shapes do not fit together; the text names the argument.
    """
    call = attended(query, key, value, features)
    grad = incoming(grad_output, call)
    sums = zero_gradients(call, features)
    with np.errstate(invalid="ignore", over="ignore"):
        for head in call.heads():
            _add_gradients(sums, head, call, grad[head.query_at])
    return sums


def _add_gradients(sums: Gradients, head: Head, call: Attended, d_output: Array) -> None:
    """Add one head's part to the gradients."""
    logits = Logits.of(head, call)
    visible = logits.visible
    p, lse = probabilities(logits.final, head.sink)
    d_p = head.with_dropout(np.where(visible, d_output @ head.v.T, 0.0))
    d = np.sum(p * d_p, axis=1, keepdims=True)
    d_s = np.where(visible, p * (d_p - d), 0.0)
    d_scaled = call.scale * logits.pull_back(d_s, head, call)
    sums.grad_query[head.query_at] = weighted_sum(d_scaled, visible, head.k)
    sums.grad_key[head.key_at] += weighted_sum(d_scaled.T, visible.T, head.q)
    sums.grad_value[head.key_at] += weighted_sum(head.with_dropout(p).T, visible.T, d_output)
    if sums.grad_bias is not None:
        add_reduced(sums.grad_bias, d_s, head)
    if sums.grad_sink is not None and head.sink is not None:
        seen = visible.any(axis=1)
        sums.grad_sink[head.at.head] -= np.sum(np.exp(head.sink - lse[seen]) * d[seen, 0])


def attended(query: ArrayLike, key: ArrayLike, value: ArrayLike, features: Features) -> Attended:
    """The call, checked."""
    q, k, v = (np.asarray(operand, dtype=np.float64) for operand in (query, key, value))
    check_operands(*(TensorSpec.dense(x.shape, DType.FLOAT64) for x in (q, k, v)))
    return Attended.of(q, k, v, features)


def incoming(grad_output: ArrayLike, call: Attended) -> Array:
    """The output's gradient, checked."""
    grad = np.asarray(grad_output, dtype=np.float64)
    expected = (*call.q.shape[:3], call.v.shape[-1])
    if grad.shape != expected:
        raise ValueError(
            f"grad_output has shape {list(grad.shape)}; expected the output's, {list(expected)}"
        )
    return grad


def zero_gradients(call: Attended, features: Features) -> Gradients:
    """Zeros of the gradients' shapes."""
    bias = features.get("bias")
    learnable = features.get("softmax") is Softmax.LEARNABLE
    return Gradients(
        np.zeros(call.q.shape),
        np.zeros(call.k.shape),
        np.zeros(call.v.shape),
        grad_bias=None if bias is None else np.zeros(np.shape(bias)),
        grad_sink=np.zeros(call.q.shape[1]) if learnable else None,
    )


def add_reduced(total: Array, part: Array, head: Head) -> None:
    """Add ``[Sq, Skv]`` of one head to ``total``, summed over the axes that are 1 there."""
    b, h, rows, columns = head.pair_at
    axes = tuple(axis for axis, n in enumerate(total.shape[2:]) if n == 1 and part.shape[axis] != 1)
    reduced = np.sum(part, axis=axes, keepdims=True)
    at = (
        b if total.shape[0] > 1 else 0,
        h if total.shape[1] > 1 else 0,
        rows if total.shape[2] > 1 else slice(None),
        columns if total.shape[3] > 1 else slice(None),
    )
    total[at] += reduced


def probabilities(logits: Array, sink: float | None = None) -> tuple[Array, Array]:
    """``P [Sq, Skv]`` and ``LSE [Sq]`` of one head.

    Args:
        logits: ``[Sq, Skv]``, -inf where hidden.
        sink: a logit more in the denominator.
    """
    least = -np.inf if sink is None else sink
    largest = np.max(logits, axis=1, keepdims=True, initial=least)
    largest[largest == -np.inf] = 0.0
    weights = np.exp(logits - largest)
    total = np.sum(weights, axis=1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - largest)
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
