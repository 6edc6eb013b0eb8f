"""Packed sequences: against one dense call for each of them, and what is refused."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_jax import (
    SequenceLayout,
    dot_product_attention,
    explain_varlen,
    varlen_attention,
)

N, K, H = 4, 2, 8
LENGTHS_Q, LENGTHS_K = (3, 0, 5), (4, 2, 6)
STARTS_Q, STARTS_K = (0, 4, 4), (1, 6, 9)  # with gaps
BOUNDS_Q, BOUNDS_K = jnp.array([0, 3, 3, 8]), jnp.array([0, 4, 6, 12])
T, S = 12, 16

LAYOUT = SequenceLayout(
    BOUNDS_Q,
    BOUNDS_K,
    5,
    6,
    jnp.array([*STARTS_Q, T]),
    jnp.array([*STARTS_K, S]),
)


def array(*shape: int, seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


QUERY, KEY, VALUE = array(T, N, H), array(S, K, H, seed=1), array(S, K, H, seed=2)
DENSE_Q, DENSE_K, DENSE_V = (
    array(3, n, h, H, seed=i) for i, (n, h) in enumerate(((5, N), (6, K), (6, K)))
)


def one_by_one(query: jax.Array, key: jax.Array, value: jax.Array, **options: Any) -> jax.Array:
    out = jnp.zeros_like(query)
    for i, length_q, j, length_k in zip(STARTS_Q, LENGTHS_Q, STARTS_K, LENGTHS_K, strict=True):
        q, k = slice(i, i + length_q), slice(j, j + length_k)
        part = dot_product_attention(query[q], key[k], value[k], **options)
        out = out.at[q].set(part)
    return out


def rows(starts: tuple[int, ...], lengths: tuple[int, ...]) -> jax.Array:
    """The packed rows that belong to a sequence."""
    each = zip(starts, lengths, strict=True)
    return jnp.concatenate([jnp.arange(start, start + n) for start, n in each])


class TestValues:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"is_causal": True, "causal_alignment": "bottom_right"},
            {"is_causal": True, "causal_alignment": "top_left"},
            {"alibi": True, "causal_alignment": "bottom_right"},
            {"softcap": 1.5, "sink": jnp.linspace(-1, 1, N)},
            {"scale": -0.7, "softmax": "off_by_one"},
        ],
        ids=str,
    )
    def test_each_sequence_by_itself(self, options: dict[str, Any]) -> None:
        def results(attention: Any, **more: Any) -> Any:
            def loss(*x: jax.Array) -> Any:
                out = attention(*x, **more, **options)
                return (out**2).sum(), out

            return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(QUERY, KEY, VALUE)

        found = results(varlen_attention, layout=LAYOUT)
        for one, other in zip(
            jax.tree.leaves(found), jax.tree.leaves(results(one_by_one)), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    def test_window(self) -> None:
        found = varlen_attention(QUERY, KEY, VALUE, layout=LAYOUT, window=(2, None))
        right = one_by_one(
            QUERY, KEY, VALUE, local_window_size=(2, 99), causal_alignment="bottom_right"
        )
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)

    def test_residual_and_largest_logits(self) -> None:
        out, lse, largest = varlen_attention(
            QUERY, KEY, VALUE, layout=LAYOUT, return_lse=True, return_max_logit=True
        )
        assert (out.shape, lse.shape, largest.shape) == ((T, N, H), (T, N), (N,))
        gaps = np.array([3, 9, 10, 11])
        assert (out[gaps] == 0).all()
        assert (lse[gaps] == -jnp.inf).all()
        logits = [
            jnp.einsum("tkgh,skh->kgts", QUERY[i : i + m].reshape(m, K, -1, H), KEY[j : j + n])
            .max((2, 3))
            .reshape(-1)
            for i, m, j, n in zip(STARTS_Q, LENGTHS_Q, STARTS_K, LENGTHS_K, strict=True)
            if m
        ]
        np.testing.assert_allclose(largest, jnp.stack(logits).max(0) * H**-0.5, rtol=1e-5)

    def test_gaps_do_not_matter_and_have_gradient_0(self) -> None:
        gaps_q, gaps_k = np.array([3, 9, 10, 11]), np.array([0, 5, 8, 15])
        spoiled = (
            QUERY.at[gaps_q].set(jnp.nan),
            KEY.at[gaps_k].set(jnp.nan),
            VALUE.at[gaps_k].set(jnp.inf),
        )

        def attend(*x: jax.Array) -> jax.Array:
            return varlen_attention(*x, layout=LAYOUT, is_causal=True)

        out, pull = jax.vjp(attend, *spoiled)
        incoming = jnp.ones_like(out).at[gaps_q].set(jnp.nan)
        expected, clean = jax.vjp(attend, QUERY, KEY, VALUE)
        np.testing.assert_array_equal(out, expected)
        for one, other in zip(pull(incoming), clean(jnp.ones_like(out)), strict=True):
            np.testing.assert_array_equal(one, other)
        assert (pull(incoming)[1][gaps_k] == 0).all()

    def test_without_gaps(self) -> None:
        rows_q, rows_k = rows(STARTS_Q, LENGTHS_Q), rows(STARTS_K, LENGTHS_K)
        found = varlen_attention(
            QUERY[rows_q], KEY[rows_k], VALUE[rows_k], BOUNDS_Q, BOUNDS_K, 5, 6
        )
        right = varlen_attention(QUERY, KEY, VALUE, layout=LAYOUT)[rows_q]
        np.testing.assert_allclose(found, right, rtol=1e-6)

    def test_dense_keys(self) -> None:
        lengths = jnp.array(LENGTHS_K)
        found = varlen_attention(
            QUERY,
            DENSE_K,
            DENSE_V,
            BOUNDS_Q,
            max_q=5,
            cu_seq_q_padded=LAYOUT.cu_seqlens_q_padded,
            seq_lens_kv=lengths,
        )
        for b, (i, m, n) in enumerate(zip(STARTS_Q, LENGTHS_Q, LENGTHS_K, strict=True)):
            right = dot_product_attention(QUERY[i : i + m], DENSE_K[b, :n], DENSE_V[b, :n])
            np.testing.assert_allclose(found[i : i + m], right, rtol=1e-5, atol=1e-6)

    def test_dense_queries_are_full_without_lengths(self) -> None:
        options = {"cu_seq_k": BOUNDS_K, "max_k": 6, "cu_seq_k_padded": LAYOUT.cu_seqlens_kv_padded}
        out, lse = varlen_attention(DENSE_Q, KEY, VALUE, **options, return_lse=True)
        assert (out.shape, lse.shape) == ((3, 5, N, H), (3, N, 5))
        full = varlen_attention(
            DENSE_Q, KEY, VALUE, **options, seq_lens_q=jnp.full(3, 5, jnp.int32)
        )
        np.testing.assert_array_equal(out, full)

    @pytest.mark.parametrize("count", [0, 4])
    def test_no_sequences(self, count: int) -> None:
        bounds = jnp.zeros(1, jnp.int32)
        q, k = QUERY[:count], KEY[:count]

        def attend(q: jax.Array) -> jax.Array:
            return varlen_attention(q, k, k, bounds, bounds, 8, 8)

        assert (attend(q) == 0).all()
        assert (jax.grad(lambda q: attend(q).sum())(q) == 0).all()

    def test_dropout_counts_inside_sequences(self) -> None:
        """Both ways of packing the same sequences drop the same."""
        options = {"dropout_rate": 0.5, "dropout_key": jax.random.key(1)}
        rows_q, rows_k = rows(STARTS_Q, LENGTHS_Q), rows(STARTS_K, LENGTHS_K)
        dense = varlen_attention(
            QUERY[rows_q], KEY[rows_k], VALUE[rows_k], BOUNDS_Q, BOUNDS_K, 5, 6, **options
        )
        found = varlen_attention(QUERY, KEY, VALUE, layout=LAYOUT, **options)
        np.testing.assert_allclose(found[rows_q], dense, rtol=1e-5, atol=1e-6)


class TestLayout:
    def test_parts_are_named_as_given(self) -> None:
        for change, says in (
            ({"max_q": None}, "max_q is None; cu_seqlens_q needs"),
            ({"max_kv": None}, "max_kv is None; cu_seqlens_kv needs"),
            ({"cu_seqlens_kv": BOUNDS_K[:3]}, r"cu_seqlens_kv has shape \[3\]"),
            ({"cu_seqlens_q_padded": BOUNDS_Q[:2]}, r"cu_seqlens_q_padded has shape \[2\]"),
        ):
            with pytest.raises(ValueError, match=says):
                varlen_attention(QUERY, KEY, VALUE, layout=replace(LAYOUT, **change))

    def test_lengths_of_a_dense_side_are_no_part_of_it(self) -> None:
        parts = SequenceLayout(BOUNDS_Q, max_q=5, cu_seqlens_q_padded=LAYOUT.cu_seqlens_q_padded)
        given = {"seq_lens_kv": jnp.array(LENGTHS_K)}
        found = varlen_attention(QUERY, DENSE_K, DENSE_V, layout=parts, **given)
        expected = varlen_attention(
            QUERY,
            DENSE_K,
            DENSE_V,
            parts.cu_seqlens_q,
            max_q=5,
            cu_seq_q_padded=parts.cu_seqlens_q_padded,
            **given,
        )
        np.testing.assert_array_equal(found, expected)

    def test_integers_of_64_bits(self) -> None:
        expected = varlen_attention(QUERY, KEY, VALUE, layout=LAYOUT)
        with jax.enable_x64(True):
            wide = jax.tree.map(lambda x: x.astype(jnp.int64), LAYOUT)
            assert wide.cu_seqlens_q.dtype == jnp.int64
            found = varlen_attention(QUERY, KEY, VALUE, layout=wide)
        np.testing.assert_array_equal(found, expected)

    def test_goes_through_jit_as_a_value(self) -> None:
        attend = jax.jit(lambda q, layout: varlen_attention(q, KEY, VALUE, layout=layout))
        right = varlen_attention(QUERY, KEY, VALUE, layout=LAYOUT)
        np.testing.assert_allclose(attend(QUERY, LAYOUT), right, rtol=1e-6)

    def test_lengths_are_static(self) -> None:
        leaves, tree = jax.tree.flatten(LAYOUT)
        assert len(leaves) == 4
        assert jax.tree.unflatten(tree, leaves).max_kv == 6


def bad(name: str, says: str, error: type[Exception] = ValueError, **change: Any) -> Any:
    return pytest.param(error, says, change, id=name)


PACKED = {"cu_seq_q": BOUNDS_Q, "cu_seq_k": BOUNDS_K, "max_q": 5, "max_k": 6}


class TestBadInput:
    @pytest.mark.parametrize(
        ("error", "says", "change"),
        [
            bad("nothing", "neither cu_seq_q nor cu_seq_k", **dict.fromkeys(PACKED)),
            bad("keys only", "query has 3 axes", cu_seq_q=None, max_q=None),
            bad("queries only", "key has 3 axes", cu_seq_k=None, max_k=None),
            bad("no max_q", "max_q is None", max_q=None),
            bad("no max_k", "max_k is None", max_k=None),
            bad("max_q alone", "max_q is given without cu_seq_q", cu_seq_q=None),
            bad(
                "padded alone",
                "cu_seq_k_padded is given without cu_seq_k",
                cu_seq_k=None,
                max_k=None,
                cu_seq_k_padded=BOUNDS_K,
            ),
            bad("lengths twice", "seq_lens_q is given beside", seq_lens_q=jnp.ones(3, jnp.int32)),
            bad("dense query", "query has 4 axes, and cu_seq_q", query=DENSE_Q),
            bad("dense key", "key has 4 axes, and cu_seq_k", key=DENSE_K),
            bad("dense value", "value has shape", value=DENSE_V),
            bad("value tokens", "value has 15 tokens", value=VALUE[1:]),
            bad("heads", "key has 3; the query", key=array(S, 3, H), value=array(S, 3, H)),
            bad("head dim", "key has head_dim 4", key=KEY[..., :4]),
            bad("counts", r"cu_seq_k has shape \[3\]; expected \[4\]", cu_seq_k=BOUNDS_K[:3]),
            bad("padded", r"cu_seq_q_padded has shape \[2\]", cu_seq_q_padded=BOUNDS_Q[:2]),
            bad("no bounds", r"cu_seq_q has shape \[0\]", cu_seq_q=BOUNDS_Q[:0]),
            bad("rank", "cu_seq_q has shape", cu_seq_q=BOUNDS_Q[None]),
            bad("floats", "cu_seq_q has dtype float32", TypeError, cu_seq_q=jnp.ones(4)),
            bad("list", "cu_seq_q is of type list", TypeError, cu_seq_q=[0, 3, 3, 8]),
            bad("max_q float", "max_q is a float", TypeError, max_q=5.0),
            bad("max_k negative", "max_k = -1", max_k=-1),
            bad("layout", "layout is a dict", TypeError, layout={}),
            bad("both", "cu_seq_q is given beside layout", layout=LAYOUT),
            bad("window", "window is 3", TypeError, window=3),
            bad("causal window", "sees keys to the right", is_causal=True, window=(3, 1)),
            bad("return_lse", "return_lse", TypeError, return_lse="yes"),
            bad("type", "key has dtype bfloat16", TypeError, key=KEY.astype(jnp.bfloat16)),
            bad("implementation", "implementation", implementation="flash"),
        ],
    )
    def test_is_refused_by_name(
        self, error: type[Exception], says: str, change: dict[str, Any]
    ) -> None:
        arguments = {"query": QUERY, "key": KEY, "value": VALUE, **PACKED, **change}
        for function in (varlen_attention, explain_varlen):
            operands = [arguments[name] for name in ("query", "key", "value")]
            others = {k: v for k, v in arguments.items() if k not in ("query", "key", "value")}
            with pytest.raises(error, match=says):
                function(*operands, **others)

    def test_traced_longest(self) -> None:
        with pytest.raises(TypeError, match="max_q is traced"):
            jax.jit(lambda n: varlen_attention(QUERY, KEY, VALUE, BOUNDS_Q, BOUNDS_K, n, 6))(5)


class TestExplain:
    def test_on_an_h200(self) -> None:
        half = [jax.ShapeDtypeStruct(x.shape, jnp.bfloat16) for x in (QUERY, KEY, VALUE)]
        decision = explain_varlen(*half, layout=LAYOUT, device="h200", is_causal=True)
        assert decision.forward.backend == "cudnn"
        assert "packed" in str(decision)

    def test_bounds_may_be_shapes(self) -> None:
        bounds = jax.ShapeDtypeStruct((4,), jnp.int32)
        decision = explain_varlen(QUERY, KEY, VALUE, bounds, bounds, 5, 6, training=False)
        assert decision.backward is None
