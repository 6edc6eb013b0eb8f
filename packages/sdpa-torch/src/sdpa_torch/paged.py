"""Attention to keys and values in pages, for inference."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdpa_core import NoBackendError
from sdpa_core.paged import INFERENCE_ONLY

from .arguments import lengths, operands
from .packing import SequenceLayout, dense_lengths, layout_from
from .request import Request, requested
from .varlen import run


def paged_attention(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    page_table: Tensor,
    seq_lens_kv: Tensor,
    *,
    value_page_table: Tensor | None = None,
    cu_seq_q: Tensor | None = None,
    max_q: int | None = None,
    cu_seq_q_padded: Tensor | None = None,
    seq_lens_q: Tensor | None = None,
    is_causal: bool = False,
    causal_alignment: str = "bottom_right",
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softmax: str = "vanilla",
    sink: Tensor | None = None,
    softcap: float | None = None,
    alibi: bool | Tensor = False,
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool | None = None,
    backend: str | None = None,
) -> Any:
    r"""Attention, ``softmax(scale * Q K^T) V``, to keys and values that lie in pages of a pool.

    Token ``t`` of sequence ``b`` is row ``t % page_size`` of page
    ``page_table[b, t // page_size]``. Pages may be shared. The pools must be allocated with finite
    values (zeros, say): rows past a sequence's end share pages with rows that are read. There is no
    backward pass.

    Args:
        query: ``[B, Hq, Sq, D]``, or ``[Tq, Hq, D]`` packed if ``cu_seq_q`` is given.
        key_pages: ``[pages, page_size, Hkv, D]``, of the query's dtype and device.
        value_pages: ``[pages, page_size, Hkv, Dv]``.
        page_table: int32 or int64 ``[B, pages of a sequence]``. Entries past a sequence's last page
            may hold anything that is a valid page.
        seq_lens_kv: int32 or int64 ``[B]``, tokens of each sequence.
        value_page_table: the pages of the values, if they are other ones.
        cu_seq_q, max_q, cu_seq_q_padded, seq_lens_q: as for ``varlen_attention``.
        is_causal, causal_alignment, window, scale, softmax, sink, softcap, alibi, return_lse,
            return_max_logit, deterministic, backend: as for ``varlen_attention``.

    Returns:
        ``[B, Hq, Sq, Dv]`` (``[Tq, Hq, Dv]``) in the query's dtype; then, if asked for, the
        log-sum-exp and the largest logits, as a tuple.

    Raises:
        TypeError, ValueError: a wrong argument; the text names it.
        NoBackendError: valid, but unsupported, such as an operand that requires a gradient.

    Equivalent::

        key = key_pages[page_table].flatten(1, 2)[b, :seq_lens_kv[b]]      # [tokens, Hkv, D]
    """
    request = paged(
        query,
        key_pages,
        value_pages,
        page_table,
        seq_lens_kv,
        value_page_table=value_page_table,
        cu_seq_q=cu_seq_q,
        max_q=max_q,
        cu_seq_q_padded=cu_seq_q_padded,
        seq_lens_q=seq_lens_q,
        is_causal=is_causal,
        causal_alignment=causal_alignment,
        window=window,
        scale=scale,
        softmax=softmax,
        sink=sink,
        softcap=softcap,
        alibi=alibi,
        return_lse=return_lse,
        return_max_logit=return_max_logit,
        deterministic=deterministic,
    )
    return run(request, backend)


def paged(
    query: Any,
    key_pages: Any,
    value_pages: Any,
    page_table: Any,
    seq_lens_kv: Any,
    *,
    value_page_table: Any,
    cu_seq_q: Any,
    max_q: Any,
    cu_seq_q_padded: Any,
    seq_lens_q: Any,
    **others: Any,
) -> Request:
    """Check and spell out a call of ``paged_attention``.

    Args:
        others: as ``requested`` takes them.
    """
    for name, given in (("key_pages", key_pages), ("value_pages", value_pages)):
        operands.tensor(name, given, query if isinstance(query, Tensor) else given, _POOL)
    query, key_pages, value_pages = operands.tensors(query, key_pages, value_pages)
    layout = _layout(query, cu_seq_q, max_q, cu_seq_q_padded)
    batch = query.shape[0] if layout is None else layout.batch
    _check_pools(query, key_pages, value_pages)
    table = lengths.page_table("page_table", page_table, query, batch)
    values = table
    if value_page_table is not None:
        values = lengths.page_table("value_page_table", value_page_table, query, batch)
        if values.shape != table.shape:
            raise ValueError(
                f"value_page_table has shape {list(values.shape)}, page_table has "
                f"{list(table.shape)}; they must be equal"
            )
    _check_pages(key_pages, value_pages, table, value_page_table is None)
    if seq_lens_kv is None:
        raise TypeError(
            f"seq_lens_kv is None; expected the tokens of each sequence, int32 or int64 [{batch}]"
        )
    further = {
        "seq_lens_q": _lengths_q(seq_lens_q, query, layout is not None, batch),
        "seq_lens_kv": lengths.lengths_of("seq_lens_kv", seq_lens_kv, query, batch),
        "cu_seqlens_q": None if layout is None else layout.cu_seqlens_q,
        "cu_seqlens_q_padded": None if layout is None else layout.cu_seqlens_q_padded,
        "page_table_k": table,
        "page_table_v": values,
    }
    request = requested(
        query,
        key_pages.transpose(1, 2),
        value_pages.transpose(1, 2),
        further,
        batch=batch,
        slack_is_finite=True,  # of queries, which only a backward pass would mix with others
        max_q=None if layout is None else layout.max_q,
        **others,
    )
    _refuse_training(query, key_pages, value_pages, request.others["sink"])
    return request


_POOL = "[pages, page_size, Hkv, head_dim]"


def _layout(query: Tensor, cu_seq_q: Any, max_q: Any, gaps: Any) -> SequenceLayout | None:
    """Where packed queries are; None: they are dense."""
    if cu_seq_q is None and max_q is None and gaps is None:
        if query.dim() != 4:
            raise ValueError(
                f"query has shape {list(query.shape)}; expected [B, Hq, Sq, D], or cu_seq_q and "
                f"max_q for packed queries [Tq, Hq, D]"
            )
        return None
    if cu_seq_q is None:
        name = "max_q" if max_q is not None else "cu_seq_q_padded"
        raise ValueError(f"{name} is given without cu_seq_q; packed sequences need both")
    layout = layout_from(None, cu_seq_q, None, max_q, None, gaps, None)
    operands.tensor("cu_seq_q", cu_seq_q, query, "[B + 1]")
    if query.dim() != 3:
        raise ValueError(
            f"query has shape {list(query.shape)}; with cu_seq_q it is [tokens, heads, head_dim]"
        )
    return layout


def _check_pools(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, pool in (("key_pages", key), ("value_pages", value)):
        if pool.dim() != 4:
            raise ValueError(f"{name} has shape {list(pool.shape)}; expected {_POOL}")
        if pool.dtype != query.dtype:
            raise TypeError(f"{name} has dtype {pool.dtype}, query has {query.dtype}")
    for what, axis in (("tokens in a page", 1), ("heads", 2)):
        if key.shape[axis] != value.shape[axis]:
            raise ValueError(
                f"value_pages has {value.shape[axis]} {what}, key_pages has {key.shape[axis]}; "
                f"they must be equal"
            )
    if key.shape[1] == 0:
        raise ValueError("key_pages has pages of 0 tokens; expected at least 1")
    heads, heads_kv = query.shape[1], key.shape[2]
    if heads_kv == 0 or heads % heads_kv:
        raise ValueError(
            f"query has {heads} heads, key_pages has {heads_kv}; "
            f"the query's heads must be a multiple of the key's"
        )
    if key.shape[3] != query.shape[-1]:
        raise ValueError(f"key_pages has head_dim {key.shape[3]}, query has {query.shape[-1]}")


def _check_pages(key: Tensor, value: Tensor, table: Tensor, shared: bool) -> None:
    """Raise if a table cannot name pages of its pool."""
    if shared and key.shape[0] != value.shape[0]:
        raise ValueError(
            f"value_pages has {value.shape[0]} pages, key_pages has {key.shape[0]}; without a "
            f"value_page_table they must be equal"
        )
    for name, pool in (("key_pages", key), ("value_pages", value)):
        if pool.shape[0] == 0 < table.numel():
            raise ValueError(
                f"{name} has no pages, page_table has shape {list(table.shape)}; its entries must "
                f"name pages"
            )


def _lengths_q(given: Any, query: Tensor, packed: bool, batch: int) -> Tensor | None:
    if given is None and not packed:
        return None
    return dense_lengths("seq_lens_q", given, query, packed, batch)


def _refuse_training(*differentiable: Tensor | None) -> None:
    wanted = (tensor is not None and tensor.requires_grad for tensor in differentiable)
    if torch.is_grad_enabled() and any(wanted):
        raise NoBackendError(
            f"sdpa_torch.paged_attention is for inference: pages have no backward pass\n"
            f"  {INFERENCE_ONLY}"
        )
