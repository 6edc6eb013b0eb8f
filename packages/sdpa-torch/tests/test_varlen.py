"""Packed and paged sequences: meaning, and refusals that name names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import sdpa_torch
from sdpa_core import NoBackendError
from sdpa_torch import SequenceLayout, paged_attention, varlen_attention
from sdpa_torch import scaled_dot_product_attention as sdpa
from sdpa_torch.testing import fake_cudnn


def rand(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator)


def ints(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


QUERY, KEY = rand(7, 4, 8), rand(11, 2, 8, seed=1)
CU_Q, CU_K = ints(0, 2, 2, 6), ints(0, 3, 5, 10)


def one_by_one(query: Tensor, key: Tensor, **options: Any) -> Tensor:
    """Sequences attended one after another, and zeros in the last row, which is nobody's."""
    output = torch.zeros_like(query)
    for b in range(3):
        rows, keys = slice(CU_Q[b], CU_Q[b + 1]), slice(CU_K[b], CU_K[b + 1])
        q, k = (t.transpose(0, 1)[None] for t in (query[rows], key[keys]))
        output[rows] = sdpa(q, k, k, enable_gqa=True, **options)[0].transpose(0, 1)
    return output


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True, "causal_alignment": "bottom_right"},
        {"window": (2, 1), "causal_alignment": "top_left"},
        {"softcap": 1.5, "alibi": True, "causal_alignment": "bottom_right"},
        {"sink": rand(4, seed=3), "scale": -0.4},
    ],
    ids=str,
)
def test_packed_sequences_are_attended_one_by_one(options: dict[str, Any]) -> None:
    query, key = QUERY.clone().requires_grad_(), KEY.clone().requires_grad_()
    ours = varlen_attention(query, key, key, CU_Q, CU_K, 4, 5, **options)
    theirs = one_by_one(query, key, **options)
    torch.testing.assert_close(ours, theirs)
    incoming = rand(*QUERY.shape, seed=4)
    found = torch.autograd.grad(ours, (query, key), incoming)
    exact = torch.autograd.grad(theirs, (query, key), incoming)
    for mine, other in zip(found, exact, strict=True):
        torch.testing.assert_close(mine, other)


def test_rows_of_no_sequence_never_matter() -> None:
    query, key = QUERY.clone(), KEY.clone()
    query[6], key[10] = torch.nan, torch.nan
    output, lse, largest = varlen_attention(
        query, key, key, CU_Q, CU_K, 4, 5, return_lse=True, return_max_logit=True
    )
    torch.testing.assert_close(output[:6], one_by_one(QUERY, KEY)[:6])
    assert not output[6].any()
    assert (lse[6] == -torch.inf).all()
    assert lse.shape == (7, 4)
    assert largest.isfinite().all()


def test_a_layout_is_the_arguments_as_a_value() -> None:
    layout = SequenceLayout(CU_Q, CU_K, 4, 5)
    expected = varlen_attention(QUERY, KEY, KEY, CU_Q, CU_K, 4, 5)
    assert torch.equal(varlen_attention(QUERY, KEY, KEY, layout=layout), expected)
    assert layout.batch == 3


@pytest.mark.parametrize("backend", ["reference", "cudnn"])
def test_integers_of_64_bits_are_what_those_of_32_are(backend: str) -> None:
    query, key = (x.bfloat16() for x in (QUERY, KEY))
    starts = ints(0, 3, 3, 7)
    query = torch.cat((query, query))

    def attend(convert: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        cu_q, cu_k, padded = (convert(x) for x in (CU_Q, CU_K, starts))
        layout = SequenceLayout(cu_q, cu_k, 4, 5, padded)
        kept = (layout.cu_seqlens_q, layout.cu_seqlens_kv, layout.cu_seqlens_q_padded)
        assert {x.dtype for x in kept if x is not None} == {torch.int32}
        by_layout = varlen_attention(query, key, key, layout=layout, backend=backend)
        by_parts = varlen_attention(
            query, key, key, cu_q, cu_k, 4, 5, cu_seq_q_padded=padded, backend=backend
        )
        assert torch.equal(by_layout, by_parts)
        table, lengths, bounds = (convert(x) for x in (TABLE, LENGTHS, ints(0, 1, 4)))
        pool = POOL.bfloat16()
        paged = paged_attention(
            query[:4], pool, pool, table, lengths, cu_seq_q=bounds, max_q=3, backend=backend
        )
        return by_parts, paged

    with fake_cudnn():
        for narrow, wide in zip(attend(Tensor.int), attend(Tensor.long), strict=True):
            assert torch.equal(narrow, wide)


def test_one_side_may_be_dense() -> None:
    key = rand(3, 2, 6, 8)
    output = varlen_attention(QUERY, key, key, CU_Q, None, 4, seq_lens_kv=ints(6, 1, 4))
    for b, (start, stop, tokens) in enumerate(((0, 2, 6), (2, 2, 1), (2, 6, 4))):
        q = QUERY[start:stop].transpose(0, 1)[None]
        k = key[b : b + 1, :, :tokens]
        exact = sdpa(q, k, k, enable_gqa=True)[0].transpose(0, 1)
        torch.testing.assert_close(output[start:stop], exact)


def test_starts_may_lie_apart() -> None:
    padded = ints(0, 3, 3, 8)
    query = torch.full((9, 4, 8), torch.nan, dtype=torch.float64)
    query[0:2], query[3:7] = QUERY[0:2], QUERY[2:6]
    output = varlen_attention(query, KEY, KEY, CU_Q, CU_K, 4, 5, cu_seq_q_padded=padded)
    exact = one_by_one(QUERY, KEY)
    torch.testing.assert_close(output[0:2], exact[0:2])
    torch.testing.assert_close(output[3:7], exact[2:6])
    assert not output[[2, 7, 8]].any()


@pytest.mark.parametrize(
    ("rows", "cu", "longest"), [(0, (0, 0), 0), (5, (0,), 0), (5, (0, 0, 0), 3)], ids=str
)
def test_there_may_be_nothing(rows: int, cu: tuple[int, ...], longest: int) -> None:
    query = rand(rows, 2, 8).requires_grad_()
    arguments = (ints(*cu), ints(*cu), longest, longest)
    output, lse = varlen_attention(query, query, query, *arguments, return_lse=True)
    assert output.shape == query.shape
    assert not output.any()
    assert (lse == -torch.inf).all()
    output.sum().backward()
    assert query.grad is not None
    assert not query.grad.any()


def test_vmap_over_the_query_and_over_lengths() -> None:
    queries = torch.stack([QUERY, QUERY + 1])

    def by_query(query: Tensor) -> Tensor:
        return varlen_attention(query, KEY, KEY, CU_Q, CU_K, 4, 5, is_causal=True)

    expected = torch.stack([by_query(query) for query in queries])
    torch.testing.assert_close(torch.vmap(by_query)(queries), expected)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_compile_traces_without_a_break() -> None:
    def run(query: Tensor, key: Tensor) -> Tensor:
        return varlen_attention(query, key, key, CU_Q, CU_K, 4, 5, is_causal=True)

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    query = QUERY.clone().requires_grad_()
    torch.testing.assert_close(compiled(query, KEY), run(query, KEY))


def packed(**changes: Any) -> dict[str, Any]:
    return {
        "query": QUERY,
        "key": KEY,
        "value": KEY,
        "cu_seq_q": CU_Q,
        "cu_seq_k": CU_K,
        "max_q": 4,
        "max_k": 5,
        **changes,
    }


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "r39_one_side_forgotten": (
        packed(cu_seq_q=None),
        ValueError,
        "max_q is given without cu_seq_q; packed sequences need both",
    ),
    "r39_one_side_dense": (
        packed(cu_seq_q=None, max_q=None),
        ValueError,
        "query has shape [7, 4, 8]; with cu_seq_q None it is [B, heads, tokens, head_dim]",
    ),
    "r43_dense_with_cu_seqlens": (
        packed(query=QUERY[None]),
        ValueError,
        "query has shape [1, 7, 4, 8]; with cu_seq_q given it is [tokens, heads, head_dim]",
    ),
    "r61_no_longest": (packed(max_k=None), ValueError, "cu_seq_k is given without max_k"),
    "nothing_packed": (
        packed(cu_seq_q=None, cu_seq_k=None, max_q=None, max_k=None),
        ValueError,
        "cu_seq_q and cu_seq_k are both None; for dense sequences",
    ),
    "gaps_alone": (
        packed(cu_seq_k=None, max_k=None, cu_seq_k_padded=CU_K),
        ValueError,
        "cu_seq_k_padded is given without cu_seq_k",
    ),
    "cu_list": (packed(cu_seq_q=[0, 7]), TypeError, "cu_seq_q is a list"),
    "cu_int16": (packed(cu_seq_q=CU_Q.short()), TypeError, "cu_seq_q has dtype torch.int16"),
    "cu_rank": (packed(cu_seq_q=CU_Q[None]), ValueError, "cu_seq_q has shape [1, 4]"),
    "cu_empty": (packed(cu_seq_q=CU_Q[:0]), ValueError, "cu_seq_q has shape [0]"),
    "cu_counts": (packed(cu_seq_k=CU_K[:3]), ValueError, "cu_seq_k has shape [3] on cpu, cu_seq_q"),
    "cu_device": (
        packed(cu_seq_q=CU_Q.to("meta"), cu_seq_k=CU_K.to("meta")),
        ValueError,
        "cu_seq_q is on meta, query is on cpu",
    ),
    "max_tensor": (packed(max_q=torch.tensor(4)), TypeError, "max_q is a Tensor; expected an int"),
    "max_negative": (packed(max_k=-1), ValueError, "max_k = -1"),
    "layout_twice": (
        packed(layout=SequenceLayout(CU_Q, CU_K, 4, 5)),
        ValueError,
        "layout is given beside cu_seq_q",
    ),
    "layout_text": (packed(layout="thd"), TypeError, "layout is a str; expected a SequenceLayout"),
    "value_tokens": (packed(value=KEY[:9]), ValueError, "value has 9 tokens, key has 11"),
    "key_heads": (packed(key=KEY[:, :1], value=KEY), ValueError, "value has 2 heads, key has 1"),
    "ratio": (
        packed(query=QUERY[:, :3]),
        ValueError,
        "query has 3 heads, key has 2; the query's heads must be a multiple",
    ),
    "head_dim": (packed(query=QUERY[..., :4]), ValueError, "key has head_dim 8, query has 4"),
    "lengths_of_packed": (
        packed(seq_lens_q=ints(1, 1, 1)),
        ValueError,
        "seq_lens_q is given for packed sequences",
    ),
    "dense_batch": (
        packed(key=rand(2, 2, 6, 8), value=rand(2, 2, 6, 8), cu_seq_k=None, max_k=None),
        ValueError,
        "key has batch size 2, the packed side has 3 sequences",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(name: str) -> None:
    arguments, error, text = WRONG[name]
    for function in (varlen_attention, sdpa_torch.explain_varlen):
        with pytest.raises(error, match=re.escape(text)):
            function(**arguments)


def test_a_layout_is_complete_or_refused() -> None:
    with pytest.raises(ValueError, match="cu_seqlens_q is given without max_q"):
        SequenceLayout(CU_Q, CU_K, max_kv=5)
    with pytest.raises(TypeError, match=r"cu_seqlens_kv has dtype torch\.float32"):
        SequenceLayout(CU_Q, CU_K.float(), 4, 5)


# -------------------------------------------------------------------------------------- pages

POOL = rand(6, 4, 2, 8, seed=6)
TABLE = torch.tensor([[1, 3, 0], [5, 2, 4]], dtype=torch.int32)
LENGTHS = ints(7, 12)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"softmax": "off_by_one"}], ids=str)
def test_pages_are_keys_in_pieces(options: dict[str, Any]) -> None:
    query = rand(2, 4, 3, 8)
    output = paged_attention(query, POOL, POOL, TABLE, LENGTHS, **options)
    keys = POOL[TABLE.long()].flatten(1, 2).transpose(1, 2)
    options = {"causal_alignment": "bottom_right", **options}
    exact = sdpa(query, keys, keys, enable_gqa=True, seq_lens_kv=LENGTHS, **options)
    torch.testing.assert_close(output, exact)


def test_values_may_have_pages_of_their_own() -> None:
    query = rand(2, 4, 3, 8)
    moved = POOL[[5, 4, 3, 2, 1, 0]]
    output = paged_attention(query, POOL, moved, TABLE, LENGTHS, value_page_table=5 - TABLE)
    assert torch.equal(output, paged_attention(query, POOL, POOL, TABLE, LENGTHS))
    more = torch.cat((moved, moved))
    again = paged_attention(query, POOL, more, TABLE, LENGTHS, value_page_table=11 - TABLE)
    assert torch.equal(output, again)


def test_queries_of_pages_may_be_packed() -> None:
    query = rand(5, 4, 8)
    output = paged_attention(query, POOL, POOL, TABLE, LENGTHS, cu_seq_q=ints(0, 1, 4), max_q=3)
    first = paged_attention(
        query[None, :1].mT.mT.transpose(1, 2), POOL, POOL, TABLE[:1], LENGTHS[:1]
    )
    torch.testing.assert_close(output[:1], first[0].transpose(0, 1))
    assert not output[4].any()


def test_pages_are_for_inference() -> None:
    query = rand(2, 4, 3, 8).requires_grad_()
    with pytest.raises(NoBackendError, match="paged_attention is for inference"):
        paged_attention(query, POOL, POOL, TABLE, LENGTHS)
    with torch.no_grad():
        paged_attention(query, POOL, POOL, TABLE, LENGTHS)


def paged(**changes: Any) -> dict[str, Any]:
    return {
        "query": rand(2, 4, 3, 8),
        "key_pages": POOL,
        "value_pages": POOL,
        "page_table": TABLE,
        "seq_lens_kv": LENGTHS,
        **changes,
    }


WRONG_PAGES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no_lengths": (paged(seq_lens_kv=None), TypeError, "seq_lens_kv is None"),
    "table_int16": (
        paged(page_table=TABLE.short()),
        TypeError,
        "page_table has dtype torch.int16; expected torch.int32 or torch.int64",
    ),
    "slack": (paged(slack_is_finite=True), TypeError, "slack_is_finite"),
    "table_batch": (paged(page_table=TABLE[:1]), ValueError, "page_table has shape [1, 3]"),
    "table_none": (paged(page_table=None), TypeError, "page_table is a NoneType"),
    "tables": (
        paged(value_page_table=TABLE[:, :2]),
        ValueError,
        "value_page_table has shape [2, 2], page_table has [2, 3]",
    ),
    "pool_rank": (paged(key_pages=POOL[0]), ValueError, "key_pages has shape [4, 2, 8]"),
    "pool_none": (paged(value_pages=None), TypeError, "value_pages is a NoneType"),
    "pool_dtype": (paged(key_pages=POOL.half()), TypeError, "key_pages has dtype torch.float16"),
    "pool_sizes": (
        paged(value_pages=POOL[:, :2]),
        ValueError,
        "value_pages has 2 tokens in a page",
    ),
    "pool_pages": (paged(value_pages=POOL[:1]), ValueError, "value_pages has 1 pages"),
    "pool_empty": (
        paged(key_pages=POOL[:0], value_pages=POOL[:0]),
        ValueError,
        "key_pages has no pages",
    ),
    "pool_heads": (paged(value_pages=POOL[:, :, :1]), ValueError, "value_pages has 1 heads"),
    "pool_head_dim": (paged(key_pages=POOL[..., :4]), ValueError, "key_pages has head_dim 4"),
    "heads": (paged(query=rand(2, 3, 3, 8)), ValueError, "query has 3 heads, key_pages has 2"),
    "query_rank": (paged(query=rand(4, 3, 8)), ValueError, "query has shape [4, 3, 8]"),
    "max_alone": (paged(max_q=3), ValueError, "max_q is given without cu_seq_q"),
    "cu_alone": (
        paged(query=rand(5, 4, 8), cu_seq_q=ints(0, 1, 4)),
        ValueError,
        "cu_seq_q is given without max_q",
    ),
}


@pytest.mark.parametrize("name", WRONG_PAGES)
def test_a_wrong_argument_of_pages_is_named(name: str) -> None:
    arguments, error, text = WRONG_PAGES[name]
    for function in (paged_attention, sdpa_torch.explain_paged):
        with pytest.raises(error, match=re.escape(text)):
            function(**arguments)


# ------------------------------------------------------------------------------------- explain


def test_explain_says_what_packed_and_paged_calls_do() -> None:
    query = rand(7, 4, 8, dtype=torch.bfloat16)
    arguments = (query, query, query, CU_Q, CU_Q, 4, 4)
    decision = sdpa_torch.explain_varlen(*arguments, is_causal=True, device="h200", training=True)
    assert [choice.backend for choice in decision.choices] == ["cudnn", "cudnn"]
    with fake_cudnn() as fake:
        varlen_attention(*arguments, backend="cudnn")
        assert len(fake.executed) == 1
    pool = POOL.bfloat16()
    pages = (rand(2, 4, 3, 8, dtype=torch.bfloat16), pool, pool, TABLE, LENGTHS)
    assert sdpa_torch.explain_paged(*pages, device="h200").forward.backend == "cudnn"
    with pytest.raises(TypeError, match="varlen_attention has no argument 'mask'"):
        sdpa_torch.explain_varlen(*arguments, mask=None)
