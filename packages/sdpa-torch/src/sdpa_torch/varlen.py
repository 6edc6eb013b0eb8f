"""Attention for packed sequences ("THD"), and for packed beside dense ones."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .arguments import numbers, operands
from .attend import attend
from .packing import SequenceLayout, check_rank, check_sides, dense_lengths, layout_from
from .request import Request, requested


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor | None = None,
    cu_seq_k: Tensor | None = None,
    max_q: int | None = None,
    max_k: int | None = None,
    *,
    layout: SequenceLayout | None = None,
    cu_seq_q_padded: Tensor | None = None,
    cu_seq_k_padded: Tensor | None = None,
    seq_lens_q: Tensor | None = None,
    seq_lens_kv: Tensor | None = None,
    is_causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softmax: str = "vanilla",
    sink: Tensor | None = None,
    softcap: float | None = None,
    alibi: bool | Tensor = False,
    dropout_p: float = 0.0,
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool | None = None,
    slack_is_finite: bool = False,
    backend: str | None = None,
) -> Any:
    r"""Attention within sequences of different lengths, packed one after another.

    Each sequence's queries see its own keys alone, as if the sequences were attended one by one:
    ``softmax(scale * Q_b K_b^T) V_b``. Tokens are counted within the sequence. Lengths stay on the
    device; nothing waits for them. Whatever rows between and after the sequences hold does not
    matter; output and gradients there are exactly 0.

    Args:
        query: ``[Tq, Hq, D]`` packed, or ``[B, Hq, Sq, D]`` if ``cu_seq_q`` is None.
        key: ``[Tk, Hkv, D]`` packed, or ``[B, Hkv, Skv, D]`` if ``cu_seq_k`` is None; of the
            query's dtype and device. ``Hq`` is a multiple of ``Hkv``.
        value: ``[Tk, Hkv, Dv]`` or ``[B, Hkv, Skv, Dv]``, as the key.
        cu_seq_q, cu_seq_k: int32 or int64 ``[B + 1]``, cumulative lengths in tokens: sequence ``b``
            is rows ``cu[b]`` to ``cu[b + 1] - 1``.
        max_q, max_k: tokens of the longest sequence, or more; needed with ``cu_seq``. With less,
            results are undefined, see ``SequenceLayout``.
        cu_seq_q_padded, cu_seq_k_padded: int32 or int64 ``[B + 1]``, where sequences start if there
            are gaps between them; ``cu_seq`` then only says how long they are.
        layout: all of these as one value, instead.
        seq_lens_q, seq_lens_kv: int32 or int64 ``[B]``, lengths of a dense side; all full by
            default.
        is_causal: query ``i`` sees keys ``j <= i + shift``.
        causal_alignment: ``"bottom_right"``: ``shift`` is the sequence's number of keys less that
            of its queries; or ``"top_left"``: 0.
        window, scale, softmax, sink, softcap, dropout_p, deterministic, backend: as for
            ``scaled_dot_product_attention``. cuDNN runs neither ``softcap`` with packed sequences,
            nor the gradient of a sink with dropout or with ``deterministic=True``: the reference
            runs these, slowly.
        alibi: True, or slopes ``[Hq]`` or ``[B, Hq]``, which cuDNN runs as little as ``softcap``.
        return_lse: also return the log-sum-exp ``[Tq, Hq]`` (``[B, Hq, Sq]`` for dense queries);
            -inf in rows of no sequence.
        return_max_logit: also return the largest visible logit of each head, ``[Hq]``.
        slack_is_finite: promises that tokens of a dense side past their sequence's length hold
            neither NaN nor infinity, which saves copies of that side. Packed sides are never
            copied.

    Returns:
        ``[Tq, Hq, Dv]`` (``[B, Hq, Sq, Dv]``) in the query's dtype; then, if asked for, the
        log-sum-exp and the largest logits, as a tuple.

    Raises:
        TypeError, ValueError: a wrong argument, or packing that is told incompletely; the text
            names it.
        NoBackendError: valid, but unsupported; the text has every backend's reasons.

    Equivalent::

        for b in range(B):
            q, k = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
            output[q] = attention(query[q], key[k], value[k])    # of [tokens, heads, head_dim]
    """
    request = varlen(
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
        dropout_p=dropout_p,
        return_lse=return_lse,
        return_max_logit=return_max_logit,
        deterministic=deterministic,
        slack_is_finite=slack_is_finite,
    )
    return run(request, backend)


def run(request: Request, backend: Any) -> Any:
    """The results of a request that the caller asked for."""
    results = attend(*request.call(), numbers.backend_of(backend))
    asked: tuple[Tensor, ...] = results[:1]
    if request.return_lse:
        asked += (results[1].squeeze(-1),)
    if request.return_max_logit:
        asked += (results[-1],)
    return asked if len(asked) > 1 else asked[0]


def varlen(
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
    **others: Any,
) -> Request:
    """Check and spell out a call of ``varlen_attention``.

    Args:
        others: as ``requested`` takes them.
    """
    query, key, value = operands.tensors(query, key, value)
    cumulative = (cu_seq_q, cu_seq_k, max_q, max_k, cu_seq_q_padded, cu_seq_k_padded)
    found = layout_from(layout, *cumulative)
    packed_q, packed_kv = found.cu_seqlens_q is not None, found.cu_seqlens_kv is not None
    given = found.cu_seqlens_q if packed_q else found.cu_seqlens_kv
    operands.tensor("cu_seq_q" if packed_q else "cu_seq_k", given, query, "[B + 1]")
    check_rank("query", query, packed_q, "cu_seq_q")
    check_rank("key", key, packed_kv, "cu_seq_k")
    check_rank("value", value, packed_kv, "cu_seq_k")
    batch = found.batch
    check_sides(query, key, value, packed_q, packed_kv, batch)
    further = {
        "seq_lens_q": dense_lengths("seq_lens_q", seq_lens_q, query, packed_q, batch),
        "seq_lens_kv": dense_lengths("seq_lens_kv", seq_lens_kv, key, packed_kv, batch),
        "cu_seqlens_q": found.cu_seqlens_q,
        "cu_seqlens_kv": found.cu_seqlens_kv,
        "cu_seqlens_q_padded": found.cu_seqlens_q_padded,
        "cu_seqlens_kv_padded": found.cu_seqlens_kv_padded,
    }
    return requested(
        query,
        key,
        value,
        further,
        batch=batch,
        max_q=found.max_q,
        max_kv=found.max_kv,
        **others,
    )
