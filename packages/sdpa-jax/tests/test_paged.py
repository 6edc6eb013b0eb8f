"""Paged keys and values: against the gathered ones, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_core import NoBackendError
from sdpa_jax import dot_product_attention, explain_paged, paged_attention

B, T, N, K, H, PAGE = 2, 3, 4, 2, 8, 4
LENGTHS = jnp.array([5, 11], jnp.int32)
TABLE = jnp.array([[6, 2, 0], [1, 3, 5]], jnp.int32)
VALUE_TABLE = jnp.array([[0, 4, 6], [5, 1, 2]], jnp.int32)


def array(*shape: int, seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


QUERY, KEYS, VALUES = array(B, T, N, H), array(7, PAGE, K, H, seed=1), array(7, PAGE, K, 16, seed=2)


def gathered(value_table: jax.Array = TABLE) -> tuple[jax.Array, jax.Array]:
    return KEYS[TABLE].reshape(B, -1, K, H), VALUES[value_table].reshape(B, -1, K, 16)


class TestValues:
    @pytest.mark.parametrize(
        "options",
        [{}, {"is_causal": True}, {"softcap": 2.0}, {"sink": jnp.ones(N)}, {"alibi": True}],
        ids=str,
    )
    def test_equals_gathered(self, options: dict[str, Any]) -> None:
        key, value = gathered()
        found = paged_attention(
            QUERY, KEYS, VALUES, TABLE, LENGTHS, **options, return_lse=True, return_max_logit=True
        )
        out, lse, largest = dot_product_attention(
            QUERY,
            key,
            value,
            key_value_seq_lengths=LENGTHS,
            causal_alignment="bottom_right",
            **options,
            return_residual=True,
            return_max_logit=True,
        )
        for one, other in zip(found, (out, lse.swapaxes(1, 2), largest), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)

    def test_values_in_other_pages(self) -> None:
        key, value = gathered(VALUE_TABLE)
        found = paged_attention(QUERY, KEYS, VALUES, TABLE, LENGTHS, value_page_table=VALUE_TABLE)
        expected = dot_product_attention(QUERY, key, value, key_value_seq_lengths=LENGTHS)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def test_values_in_another_number_of_pages(self) -> None:
        tables = {"value_page_table": VALUE_TABLE}
        found = paged_attention(QUERY, KEYS, VALUES, TABLE, LENGTHS, **tables)
        more = jnp.concatenate([VALUES, VALUES])
        np.testing.assert_array_equal(
            paged_attention(QUERY, KEYS, more, TABLE, LENGTHS, value_page_table=VALUE_TABLE + 7),
            found,
        )

    def test_packed_queries(self) -> None:
        packed = jnp.concatenate([QUERY[0, :1], QUERY[1]])
        found = paged_attention(
            packed, KEYS, VALUES, TABLE, LENGTHS, cu_seq_q=jnp.array([0, 1, 4]), max_q=3
        )
        dense = paged_attention(QUERY, KEYS, VALUES, TABLE, LENGTHS)
        expected = jnp.concatenate([dense[0, :1], dense[1]])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def test_integers_of_64_bits(self) -> None:
        expected = paged_attention(QUERY, KEYS, VALUES, TABLE, LENGTHS)
        with jax.enable_x64(True):
            table, lengths = TABLE.astype(jnp.int64), LENGTHS.astype(jnp.int64)
            assert table.dtype == jnp.int64
            found = paged_attention(QUERY, KEYS, VALUES, table, lengths)
        np.testing.assert_array_equal(found, expected)

    def test_vmap(self) -> None:
        queries = jnp.stack([QUERY, 2 * QUERY])
        found = jax.vmap(lambda q: paged_attention(q, KEYS, VALUES, TABLE, LENGTHS))(queries)
        for one, q in zip(found, queries, strict=True):
            expected = paged_attention(q, KEYS, VALUES, TABLE, LENGTHS)
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


def test_training_is_refused() -> None:
    with pytest.raises(NoBackendError, match="inference"):
        jax.grad(lambda q: paged_attention(q, KEYS, VALUES, TABLE, LENGTHS).sum())(QUERY)


class TestBadInput:
    @pytest.mark.parametrize(
        ("error", "says", "change"),
        [
            (ValueError, "page_table has shape", {"page_table": TABLE[:1]}),
            (ValueError, "page_table has shape", {"page_table": TABLE[0]}),
            (TypeError, "page_table has dtype", {"page_table": TABLE.astype(float)}),
            (ValueError, "value_page_table has shape", {"value_page_table": TABLE[:, :2]}),
            (ValueError, r"seq_lens_kv has shape \[1\]", {"seq_lens_kv": LENGTHS[:1]}),
            (TypeError, "seq_lens_kv is of type NoneType", {"seq_lens_kv": None}),
            (ValueError, "key_pages has shape", {"key_pages": KEYS[0]}),
            (ValueError, "value_pages has 2 tokens in a page", {"value_pages": VALUES[:, :2]}),
            (ValueError, "value_pages has 5 pages, key_pages has 7", {"value_pages": VALUES[:5]}),
            (
                ValueError,
                "key_pages has pages of 0",
                {"key_pages": KEYS[:, :0], "value_pages": VALUES[:, :0]},
            ),
            (
                ValueError,
                "key_pages has no pages",
                {"key_pages": KEYS[:0], "value_pages": VALUES[:0]},
            ),
            (ValueError, "query has 3 axes", {"query": QUERY[0]}),
            (ValueError, "query has 4 axes", {"cu_seq_q": jnp.array([0, 1, 2]), "max_q": 3}),
            (ValueError, "max_q is None", {"query": QUERY[0], "cu_seq_q": jnp.array([0, 1, 3])}),
            (ValueError, "query has 3 heads", {"query": QUERY[:, :, :3]}),
            (ValueError, "head_dim", {"query": QUERY[..., :4]}),
            (TypeError, "key_pages has dtype", {"query": QUERY.astype(jnp.bfloat16)}),
        ],
    )
    def test_is_refused_by_name(
        self, error: type[Exception], says: str, change: dict[str, Any]
    ) -> None:
        given = {
            "query": QUERY,
            "key_pages": KEYS,
            "value_pages": VALUES,
            "page_table": TABLE,
            "seq_lens_kv": LENGTHS,
            **change,
        }
        for function in (paged_attention, explain_paged):
            with pytest.raises(error, match=says):
                function(**given)


def test_explain_on_an_h200() -> None:
    half = [jax.ShapeDtypeStruct(x.shape, jnp.bfloat16) for x in (QUERY, KEYS, VALUES)]
    decision = explain_paged(*half, TABLE, LENGTHS, device="h200")
    assert decision.backward is None
    assert "pages" in str(decision)
