"""``paged_attention``: keys and values in pages of shared pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax import Array
from jax.typing import ArrayLike

from sdpa_core import TensorSpec, check_operands, flag

from . import attend, convert
from .arguments import lengths, scalars
from .convert import Operands
from .functional import CausalAlignment
from .packing import ARGUMENTS, SequenceLayout, Side


def paged_attention(
    query: ArrayLike,
    key_pages: ArrayLike,
    value_pages: ArrayLike,
    page_table: ArrayLike,
    seq_lens_kv: ArrayLike,
    *,
    value_page_table: ArrayLike | None = None,
    cu_seq_q: ArrayLike | None = None,
    max_q: int | None = None,
    cu_seq_q_padded: ArrayLike | None = None,
    seq_lens_q: ArrayLike | None = None,
    is_causal: bool = False,
    causal_alignment: CausalAlignment = "bottom_right",
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softmax: str = "vanilla",
    sink: ArrayLike | None = None,
    softcap: float | None = None,
    alibi: bool | ArrayLike = False,
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool | None = None,
    implementation: str | None = None,
) -> Array | tuple[Array, ...]:
    """Attention to keys and values that lie in pages, for inference.

    Token ``t`` of sequence ``b`` is row ``t % page_size`` of page
    ``page_table[b, t // page_size]``. Equivalent::

        key = key_pages[page_table].reshape(B, -1, K, H)
        value = value_pages[value_page_table].reshape(B, -1, K, Hv)
        dot_product_attention(query, key, value, key_value_seq_lengths=seq_lens_kv, ...)

    Args:
        query: ``[B, T, N, H]``, or packed ``[tokens, N, H]`` with ``cu_seq_q``; float16, bfloat16,
            float32 or float64.
        key_pages: ``[pages, page_size, K, H]``, of the query's type; ``K`` divides ``N``.
        value_pages: ``[pages, page_size, K, Hv]``. All rows of a pool must hold finite numbers.
        page_table: int32 or int64 ``[B, pages of a sequence]``. Entries past a sequence's length
            must name some page.
        seq_lens_kv: int32 or int64 ``[B]``, tokens of each sequence.
        value_page_table: of the values; None: as ``page_table``.
        cu_seq_q, max_q, cu_seq_q_padded, seq_lens_q: as for ``varlen_attention``.
        is_causal, causal_alignment, window, return_lse: as for ``varlen_attention``.
        scale, softmax, sink, softcap, alibi, return_max_logit, deterministic, implementation: as
            for ``dot_product_attention``.

    Returns:
        As ``varlen_attention``.

    Raises:
        TypeError: an operand is no array or of the wrong element type, a number is not concrete.
        ValueError: shapes do not fit.
        NoBackendError: it is differentiated; or, when the call is compiled, no backend that may
            run it supports it.
    """
    results = prepared(
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
        implementation=implementation,
    ).run()
    return results.asked()


def prepared(
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
    is_causal: Any,
    causal_alignment: Any,
    window: Any,
    softmax: Any,
    return_lse: Any,
    **others: Any,
) -> attend.Prepared:
    """The call that these arguments of ``paged_attention`` describe.

    Raises:
        TypeError, ValueError: as there.
    """
    where = SequenceLayout(cu_seq_q, max_q=max_q, cu_seqlens_q_padded=cu_seq_q_padded)
    queries = Side.of("q", ARGUMENTS["q"], where, seq_lens_q, query)
    operands = Operands(
        convert.operand("query", query, queries.is_packed),
        convert.operand("key_pages", key_pages, False),
        convert.operand("value_pages", value_pages, False),
    )
    batch = queries.batch(operands.query)
    _check_pools(operands, queries.spec(operands.query, batch), value_page_table is None)
    value_table = page_table if value_page_table is None else value_page_table
    tables = {
        "page_table_k": lengths.page_table("page_table", page_table, batch),
        "page_table_v": lengths.page_table("value_page_table", value_table, batch),
    }
    shapes = [list(table.shape) for table in tables.values()]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"value_page_table has shape {shapes[1]}, page_table has {shapes[0]}; "
            f"they must be equal"
        )
    for name, pool in (("key_pages", operands.key), ("value_pages", operands.value)):
        if pool.shape[0] == 0 < tables["page_table_k"].size:
            raise ValueError(
                f"{name} has no pages, page_table has shape {shapes[0]}; its entries must name "
                f"pages"
            )
    known = queries.is_packed or seq_lens_q is not None
    rows: Mapping[str, Array] = queries.arrays(operands.query, batch) if known else {}
    return attend.prepared(
        operands,
        {
            **rows,
            **tables,
            "seq_lens_kv": lengths.seq_lens("seq_lens_kv", seq_lens_kv, batch),
        },
        batch=batch,
        band=scalars.band(is_causal, causal_alignment, window),
        softmax_kind=softmax,
        return_lse=flag("return_lse", return_lse),
        longest_q=queries.longest,
        slack_is_finite=True,  # of queries, which only a backward pass would mix with others
        **others,
    )


def _check_pools(operands: Operands, query: TensorSpec, is_shared: bool) -> None:
    """Raise unless query and pools fit together.

    Args:
        is_shared: one table serves both pools.
    """
    key, value = operands.key, operands.value
    for name, pool in (("key_pages", key), ("value_pages", value)):
        if pool.dtype != operands.query.dtype:
            raise TypeError(
                f"{name} has dtype {pool.dtype}, query has {operands.query.dtype}; "
                f"they must be the same"
            )
    for what, axis in (("tokens in a page", 1), ("heads", 2)):
        if value.shape[axis] != key.shape[axis]:
            raise ValueError(
                f"value_pages has {value.shape[axis]} {what}, key_pages has {key.shape[axis]}; "
                f"they must be equal"
            )
    if is_shared and value.shape[0] != key.shape[0]:
        raise ValueError(
            f"value_pages has {value.shape[0]} pages, key_pages has {key.shape[0]}; without a "
            f"value_page_table they must be equal"
        )
    if key.shape[1] == 0:
        raise ValueError("key_pages has pages of 0 tokens; expected at least 1")
    if key.shape[3] != query.shape[3]:
        raise ValueError(
            f"key_pages has head_dim {key.shape[3]}, query has {query.shape[3]}; they must be equal"
        )
    # Everything else as if the pools were dense sequences.
    batch = query.shape[0]
    dense = (
        TensorSpec.dense((batch, x.shape[2], x.shape[1], x.shape[3]), convert.dtype_of(x))
        for x in (key, value)
    )
    check_operands(query, *dense)
