"""``varlen_attention``: sequences of different lengths, one after another in packed arrays."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax.typing import ArrayLike

from sdpa_core import check_operands, flag

from . import attend, convert
from .arguments import scalars
from .convert import Operands
from .functional import CausalAlignment
from .packing import SequenceLayout, Side, layout_from


def varlen_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    cu_seq_q: ArrayLike | None = None,
    cu_seq_k: ArrayLike | None = None,
    max_q: int | None = None,
    max_k: int | None = None,
    *,
    layout: SequenceLayout | None = None,
    cu_seq_q_padded: ArrayLike | None = None,
    cu_seq_k_padded: ArrayLike | None = None,
    seq_lens_q: ArrayLike | None = None,
    seq_lens_kv: ArrayLike | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "bottom_right",
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softmax: str = "vanilla",
    sink: ArrayLike | None = None,
    softcap: float | None = None,
    alibi: bool | ArrayLike = False,
    dropout_rate: float = 0.0,
    dropout_key: Array | None = None,
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool | None = None,
    slack_is_finite: bool = False,
    implementation: str | None = None,
) -> Array | tuple[Array, ...]:
    """Attention within sequences that lie one after another in packed arrays.

    Sequence ``b`` has rows ``start[b]`` to ``start[b] + length[b]``, where ``length`` is
    ``diff(cu_seq)`` and ``start`` is ``cu_seq_padded[:-1]``, or ``cu_seq[:-1]`` without gaps.
    Positions count inside a sequence. Equivalent::

        for b in range(B):
            q, k = (slice(start[b], start[b] + length[b]) for start, length in (queries, keys))
            out[q] = dot_product_attention(query[q], key[k], value[k], is_causal=is_causal, ...)

    Differentiable in query, key, value and sink (reverse mode). Under ``vmap`` one example runs
    after the other.

    Args:
        query: packed ``[T, N, H]``, or dense ``[B, S, N, H]`` where ``cu_seq_q`` is None; float16,
            bfloat16, float32 or float64.
        key: ``[T, K, H]``, or ``[B, S, K, H]`` where ``cu_seq_k`` is None; ``K`` divides ``N``.
        value: ``[T, K, Hv]`` or ``[B, S, K, Hv]``.
        cu_seq_q, cu_seq_k: int32 or int64 ``[B + 1]``, cumulative lengths in tokens. At least one
            side is packed.
        max_q, max_k: tokens of the longest sequence, or more, concrete; needed with ``cu_seq``.
            With less, results are undefined, see ``SequenceLayout``.
        cu_seq_q_padded, cu_seq_k_padded: int32 or int64 ``[B + 1]``, where sequences start if there
            are gaps between them; ``cu_seq`` then only says how long they are.
        layout: all of these as one value, instead.
        seq_lens_q, seq_lens_kv: int32 or int64 ``[B]``, lengths of a dense side; all full by
            default.
        is_causal: each query sees the keys up to its own position.
        causal_alignment: the diagonal ends at each sequence's last query and key
            (``"bottom_right"``) or starts from its first ones (``"top_left"``).
        window: ``(left, right)``: a query sees so many tokens to its left and right, and itself;
            None is unbounded. With ``is_causal`` right is None or 0.
        scale, softmax, sink, softcap, alibi, dropout_rate, dropout_key, return_max_logit,
            deterministic, implementation: as for ``dot_product_attention``. cuDNN runs neither
            ``softcap`` nor slopes (an array as ``alibi``) with packed sequences, nor the gradient
            of a sink with dropout or with ``deterministic=True``: the reference runs these, slowly.
        return_lse: also return the log-sum-exp, which is not differentiable.
        slack_is_finite: promises that tokens of a dense side past their sequence's length hold
            neither NaN nor infinity, which saves copies of that side. Packed sides are never
            copied.

    Returns:
        The output in the query's layout; or a tuple of it and of what else is asked for: the
        log-sum-exp ``[T, N]`` of packed queries, ``[B, N, S]`` of dense ones, and the largest
        logits ``[N]``, both float32 (float64 for float64). Rows of no sequence have output 0,
        log-sum-exp -inf and gradient 0, and what they hold does not matter.

    Raises:
        TypeError: an operand is no array or of the wrong element type, a number is not concrete.
        ValueError: shapes do not fit, or what says where sequences lie is not complete.
        NoBackendError: when the call is compiled: no backend that may run it supports it.
    """
    results = prepared(
        query,
        key,
        value,
        cu_seq_q,
        cu_seq_k,
        max_q,
        max_k,
        layout=layout,
        cu_seq_q_padded=cu_seq_q_padded,
        cu_seq_k_padded=cu_seq_k_padded,
        seq_lens_q=seq_lens_q,
        seq_lens_kv=seq_lens_kv,
        is_causal=is_causal,
        causal_alignment=causal_alignment,
        window=window,
        scale=scale,
        softmax=softmax,
        sink=sink,
        softcap=softcap,
        alibi=alibi,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        return_lse=return_lse,
        return_max_logit=return_max_logit,
        deterministic=deterministic,
        slack_is_finite=slack_is_finite,
        implementation=implementation,
    ).run()
    return results.asked()


def prepared(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: Any,
    max_k: Any,
    *,
    layout: Any,
    cu_seq_q_padded: Any,
    cu_seq_k_padded: Any,
    seq_lens_q: Any,
    seq_lens_kv: Any,
    is_causal: Any,
    causal_alignment: Any,
    window: Any,
    softmax: Any,
    return_lse: Any,
    **others: Any,
) -> attend.Prepared:
    """The call that these arguments of ``varlen_attention`` describe.

    Raises:
        TypeError, ValueError: as there.
    """
    given = SequenceLayout(cu_seq_q, cu_seq_k, max_q, max_k, cu_seq_q_padded, cu_seq_k_padded)
    where, names = layout_from(layout, given)
    if where.cu_seqlens_q is None and where.cu_seqlens_kv is None:
        raise ValueError(
            f"neither {names['q'].cu} nor {names['kv'].cu} is given; "
            f"dense sequences are for dot_product_attention"
        )
    queries = Side.of("q", names["q"], where, seq_lens_q, query)
    keys = Side.of("kv", names["kv"], where, seq_lens_kv, key)
    operands = Operands(
        convert.operand("query", query, queries.is_packed),
        convert.operand("key", key, keys.is_packed),
        convert.operand("value", value, keys.is_packed),
    )
    batch = queries.batch(operands.query)
    specs = (
        queries.spec(operands.query, batch),
        keys.spec(operands.key, batch),
        keys.spec(operands.value, batch),
    )
    check_operands(*specs)
    if keys.is_packed and operands.value.shape[0] != operands.key.shape[0]:
        raise ValueError(
            f"value has {operands.value.shape[0]} tokens, key has {operands.key.shape[0]}; "
            f"they must be equal"
        )
    return attend.prepared(
        operands,
        {**queries.arrays(operands.query, batch), **keys.arrays(operands.key, batch)},
        batch=batch,
        band=scalars.band(is_causal, causal_alignment, window),
        softmax_kind=softmax,
        return_lse=flag("return_lse", return_lse),
        longest_q=queries.longest,
        longest_kv=keys.longest,
        **others,
    )
