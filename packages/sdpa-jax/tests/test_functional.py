"""The public function: its signature, agreement with jax.nn, and what it refuses."""

import inspect
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_core import NoBackendError
from sdpa_jax import dot_product_attention, explain

B, T, S, N, K, H = 2, 5, 7, 4, 2, 8


def operands(
    q: tuple[int, ...] = (B, T, N, H),
    k: tuple[int, ...] = (B, S, K, H),
    v: tuple[int, ...] | None = None,
    dtype: Any = jnp.float32,
) -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = (q, k, k if v is None else v)
    return [
        jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes, strict=True)
    ]


class TestSignature:
    def test_begins_like_jax_nn(self) -> None:
        theirs = list(inspect.signature(jax.nn.dot_product_attention).parameters.values())
        ours = list(inspect.signature(dot_product_attention).parameters.values())
        for wanted, found in zip(theirs, ours, strict=False):
            assert (found.name, found.kind, found.default) == (
                wanted.name,
                wanted.kind,
                wanted.default,
            )

    def test_extensions_are_keywords(self) -> None:
        count = len(inspect.signature(jax.nn.dot_product_attention).parameters)
        extensions = list(inspect.signature(dot_product_attention).parameters.values())[count:]
        assert {parameter.kind for parameter in extensions} == {inspect.Parameter.KEYWORD_ONLY}


class TestAgreesWithJaxNN:
    @pytest.mark.parametrize("is_causal", [False, True])
    @pytest.mark.parametrize(
        ("q", "k"),
        [
            ((B, T, N, H), (B, S, K, H)),
            ((B, T, N, H), (B, S, N, H)),
            ((B, T, N, H), (B, S, 1, H)),
            ((T, N, H), (S, K, H)),
            ((1, T, N, H), (S, K, H)),
            ((T, N, H), (1, S, K, H)),
            ((N, H), (S, K, H)),
            ((H,), (S, 1, H)),
        ],
    )
    def test_ranks(self, q: tuple[int, ...], k: tuple[int, ...], is_causal: bool) -> None:
        given = operands(q, k)
        options = {"is_causal": is_causal, "return_residual": True}
        expected = jax.nn.dot_product_attention(*given, **options, implementation="xla")
        found = dot_product_attention(*given, **options)
        for one, other in zip(found, expected, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
    def test_types(self, dtype: Any) -> None:
        given = operands(dtype=dtype)
        expected = jax.nn.dot_product_attention(*given, implementation="xla")
        found = dot_product_attention(*given)
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found.astype(float), expected.astype(float), atol=4 * float(jnp.finfo(dtype).eps)
        )

    @pytest.mark.parametrize("scale", [0.5, 2, np.float32(0.3), np.array(0.3), jnp.array(0.3)])
    def test_scale(self, scale: Any) -> None:
        given = operands()
        expected = jax.nn.dot_product_attention(*given, scale=float(scale))
        np.testing.assert_allclose(
            dot_product_attention(*given, scale=scale), expected, rtol=1e-5, atol=1e-6
        )

    def test_gradients(self) -> None:
        given = operands()

        def loss(attention: Any) -> Any:
            return lambda *x: (attention(*x, is_causal=True) ** 2).sum()

        expected = jax.grad(loss(jax.nn.dot_product_attention), (0, 1, 2))(*given)
        for one, other in zip(
            jax.grad(loss(dot_product_attention), (0, 1, 2))(*given), expected, strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    def test_takes_numpy_arrays(self) -> None:
        given = operands()
        found = dot_product_attention(*(np.asarray(x) for x in given))
        np.testing.assert_array_equal(found, dot_product_attention(*given))


class TestExtensions:
    def test_value_may_have_another_head_dim(self) -> None:
        given = operands((T, N, H), (S, K, H), (S, K, 24))
        assert dot_product_attention(*given).shape == (T, N, 24)

    def test_bottom_right(self) -> None:
        q, k, v = operands()
        found = dot_product_attention(q, k, v, is_causal=True, causal_alignment="bottom_right")
        mask = jnp.tri(T, S, k=S - T, dtype=bool)[None, None]
        expected = jax.nn.dot_product_attention(q, k, v, mask=mask)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def test_float64(self) -> None:
        with jax.enable_x64(True):
            given = operands(dtype=jnp.float64)
            out, lse = dot_product_attention(*given, return_residual=True)
            expected = jax.nn.dot_product_attention(*given)
            assert out.dtype == lse.dtype == jnp.float64
            # jax.nn makes its softmax in float32.
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)

    def test_residual_is_float32(self) -> None:
        _, lse = dot_product_attention(*operands(dtype=jnp.bfloat16), return_residual=True)
        assert lse.dtype == jnp.float32

    def test_object_that_stands_for_an_array(self) -> None:
        class Parameter:
            def __init__(self, array: jax.Array) -> None:
                self.array = array

            def __jax_array__(self) -> jax.Array:
                return self.array

        given = operands()
        found = dot_product_attention(*(Parameter(x) for x in given))
        np.testing.assert_array_equal(found, dot_product_attention(*given))


LENGTHS = {
    "query_seq_lengths": jnp.array([5, 3], jnp.int32),
    "key_value_seq_lengths": jnp.array([4, 7], jnp.int32),
}


class TestFeaturesAgreeWithJaxNN:
    """Every argument that both have, on data where jax.nn means the same."""

    @pytest.mark.parametrize(
        "options",
        [
            {"bias": jax.random.normal(jax.random.key(3), (B, N, T, S))},
            {"bias": jax.random.normal(jax.random.key(3), (1, N, 1, S))},
            {"bias": jax.random.normal(jax.random.key(3), (T, S))},
            {"bias": jax.random.normal(jax.random.key(3), (N, T, 1))},
            {"mask": jnp.arange(S)[None] <= jnp.arange(T)[:, None] + 1},
            {"mask": jnp.arange(S) < 4, "bias": jnp.ones((T, 1)), "is_causal": True},
            LENGTHS,
            {"key_value_seq_lengths": jnp.array([4, 7], jnp.int32), "is_causal": True},
            {"local_window_size": 2},
            {"local_window_size": (1, 3)},
            {"local_window_size": 2, "is_causal": True},
            {"local_window_size": (2, 1), **LENGTHS},
        ],
        ids=str,
    )
    def test_output_residual_and_gradients(self, options: dict[str, Any]) -> None:
        given = operands(k=(B, S, N, H))
        rows = jnp.arange(T)[None] < options.get("query_seq_lengths", jnp.full(B, T))[:, None]

        def loss(attention: Any, *x: jax.Array) -> Any:
            out, lse = attention(*x, **options, return_residual=True)
            return (out**2).sum(), (out, jnp.where(rows[..., None], lse, 0.0))

        found, expected = (
            jax.value_and_grad(lambda *x, f=f: loss(f, *x), (0, 1, 2), has_aux=True)(*given)
            for f in (dot_product_attention, jax.nn.dot_product_attention)
        )
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    def test_bias_has_a_gradient(self) -> None:
        bias = jax.random.normal(jax.random.key(3), (1, N, T, S))
        given = operands(k=(B, S, N, H))
        found, expected = (
            jax.grad(lambda bias, f=f: (f(*given, bias) ** 2).sum())(bias)
            for f in (dot_product_attention, jax.nn.dot_product_attention)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class TestFeatures:
    def test_order_of_results(self) -> None:
        given = operands()
        out, lse, largest = dot_product_attention(
            *given, return_residual=True, return_max_logit=True
        )
        assert (out.shape, lse.shape, largest.shape) == ((B, T, N, H), (B, T, N), (N,))
        only = dot_product_attention(*given, return_max_logit=True)
        np.testing.assert_array_equal(only[1], largest)
        assert largest.dtype == jnp.float32

    def test_segments_are_a_mask(self) -> None:
        q, k, v = operands(k=(B, T, K, H))
        ids = jnp.array([[0, 0, 1, 1, 1], [2, 2, 2, 2, 0]])
        mask = (ids[:, :, None] == ids[:, None, :])[:, None]
        found = dot_product_attention(q, k, v, segment_ids=ids, is_causal=True)
        np.testing.assert_array_equal(
            found, dot_product_attention(q, k, v, mask=mask, is_causal=True)
        )
        np.testing.assert_array_equal(
            found, dot_product_attention(q, k, v, segment_ids=(ids, ids), is_causal=True)
        )

    def test_segments_of_queries_and_keys(self) -> None:
        given = operands()
        ids = (jnp.ones((B, T), jnp.int32), jnp.arange(B * S).reshape(B, S) % 2)
        found = dot_product_attention(*given, segment_ids=ids)
        mask = (ids[1] == 1)[:, None, None]
        np.testing.assert_array_equal(found, dot_product_attention(*given, mask=mask))

    def test_lengths_without_a_batch(self) -> None:
        q, k, v = (x[0] for x in operands())
        found = dot_product_attention(q, k, v, key_value_seq_lengths=jnp.int32(3))
        np.testing.assert_allclose(found, dot_product_attention(q, k[:3], v[:3]), atol=1e-6)

    def test_int64_lengths(self) -> None:
        given = operands()
        with jax.enable_x64(True):
            found = dot_product_attention(*given, key_value_seq_lengths=jnp.array([3, 5]))
        lengths = jnp.array([3, 5], jnp.int32)
        expected = dot_product_attention(*given, key_value_seq_lengths=lengths)
        np.testing.assert_array_equal(found, expected)

    def test_slack_does_not_matter(self) -> None:
        q, k, v = operands()
        options = {
            "query_seq_lengths": jnp.array([3, 0]),
            "key_value_seq_lengths": jnp.array([4, 2]),
        }
        spoiled = (q.at[0, 3:].set(jnp.nan), k.at[:, 4:].set(jnp.nan), v.at[1, 2:].set(jnp.inf))

        def loss(*x: jax.Array) -> jax.Array:
            return (dot_product_attention(*x, **options) ** 2).sum()

        found = jax.value_and_grad(loss, (0, 1, 2))(*spoiled)
        expected = jax.value_and_grad(loss, (0, 1, 2))(q, k, v)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(one, other)

    def test_sink_of_any_type(self) -> None:
        given = operands()
        sink = jnp.linspace(-1, 1, N)
        options = {"return_residual": True, "softmax": "learnable"}
        out, lse = dot_product_attention(*given, sink=sink, **options)
        plain, plain_lse = dot_product_attention(*given, return_residual=True)
        np.testing.assert_allclose(lse, jnp.logaddexp(plain_lse, sink), rtol=1e-5)
        np.testing.assert_allclose(
            out, plain * jnp.exp(plain_lse - lse)[..., None], rtol=1e-5, atol=1e-6
        )
        half = jax.grad(lambda sink: (dot_product_attention(*given, sink=sink) ** 2).sum())(
            sink.astype(jnp.bfloat16)
        )
        assert half.dtype == jnp.bfloat16

    def test_float64_operands_have_sinks_and_largest_logits_of_their_type(self) -> None:
        with jax.enable_x64(True):
            q, k, v = operands(dtype=jnp.float64)
            sink = jnp.linspace(-1, 1, N, dtype=jnp.float64) / 3  # not in float32
            options = {"return_residual": True, "return_max_logit": True}
            _, lse, largest = dot_product_attention(q, k, v, sink=sink, **options)
            none = k[:, :0]
            _, alone, _ = dot_product_attention(q, none, none, sink=sink, **options)
            logits = jnp.einsum("btkgh,bskh->bkgts", q.reshape(B, T, K, -1, H), k) / H**0.5
            logits = logits.reshape(B, N, T, S)
            exact = jnp.logaddexp(jax.nn.logsumexp(logits, -1), sink[:, None])
            assert {x.dtype.name for x in (lse, largest, alone)} == {"float64"}
            np.testing.assert_allclose(lse, exact.swapaxes(1, 2), rtol=1e-12)
            np.testing.assert_allclose(largest, logits.max((0, 2, 3)), rtol=1e-12)
            np.testing.assert_array_equal(alone, jnp.broadcast_to(sink, alone.shape))

    def test_off_by_one_is_a_sink_of_0(self) -> None:
        given = operands()
        found = dot_product_attention(*given, softmax="off_by_one", return_residual=True)
        expected = dot_product_attention(*given, sink=jnp.zeros(N), return_residual=True)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_slopes_instead_of_the_standard_ones(self) -> None:
        given = operands()
        standard = dot_product_attention(*given, alibi=True)
        slopes = jnp.array([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])
        for alibi in (slopes, jnp.broadcast_to(slopes, (B, N)), slopes.astype(jnp.bfloat16)):
            np.testing.assert_array_equal(dot_product_attention(*given, alibi=alibi), standard)

    def test_score_mod(self) -> None:
        given = operands()

        def mod(graph: Any, score: Any, cap: Any, bias: Any) -> Any:
            return graph.tanh(score / cap) * cap + bias

        bias = jax.random.normal(jax.random.key(4), (N, 1, S))
        found = dot_product_attention(*given, score_mod=mod, score_mod_args=(2.0, bias))
        expected = dot_product_attention(*given, bias, softcap=2.0)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def test_score_mod_bprop_replaces_the_derivative(self) -> None:
        given = operands()

        def grad(bprop: Any) -> jax.Array:
            return jax.grad(
                lambda q: dot_product_attention(
                    q,
                    *given[1:],
                    score_mod=lambda graph, score: 2.0 * score,
                    score_mod_bprop=bprop,
                ).sum()
            )(given[0])

        np.testing.assert_allclose(
            grad(lambda graph, grad, score: 2.0 * grad), grad(None), rtol=1e-6
        )
        assert (grad(lambda graph, grad, score: 0.0 * grad) == 0).all()

    @pytest.mark.parametrize(
        ("argument", "says"),
        [("alibi", "alibi has no gradient"), ("score_mod_args", "score_mod_args has no gradient")],
    )
    def test_no_gradient_is_an_error_and_not_0(self, argument: str, says: str) -> None:
        given = operands()

        def loss(x: jax.Array) -> jax.Array:
            options = (
                {"alibi": x}
                if argument == "alibi"
                else {
                    "score_mod": lambda graph, score, x: score + x,
                    "score_mod_args": (x[:, None, None],),
                }
            )
            return dot_product_attention(*given, **options).sum()

        with pytest.raises(ValueError, match=says):
            jax.grad(loss)(jnp.ones(N))
        stopped = jax.grad(lambda x: loss(jax.lax.stop_gradient(x)))(jnp.ones(N))
        assert (stopped == 0).all()


DROPOUT = {"dropout_rate": 0.4, "dropout_key": jax.random.key(7)}


class TestDropout:
    def test_share_and_expectation(self) -> None:
        q, k, _ = operands((B, 64, N, H), (B, 64, N, H))
        weights = dot_product_attention(
            jnp.zeros_like(q),
            k,
            jnp.broadcast_to(jnp.eye(64)[:, None], (B, 64, N, 64)),
            **DROPOUT,
        )
        kept = weights > 0
        np.testing.assert_allclose(weights[kept], 1 / 64 / 0.6, rtol=1e-5)
        assert abs(kept.mean() - 0.6) < 0.02

    def test_a_function_of_the_key_alone(self) -> None:
        given = operands()
        first = dot_product_attention(*given, **DROPOUT)
        raw = jax.random.key_data(DROPOUT["dropout_key"])
        for same in (
            dot_product_attention(*given, **DROPOUT),
            dot_product_attention(*given, dropout_rate=0.4, dropout_key=raw),
            jax.jit(lambda *x: dot_product_attention(*x, **DROPOUT))(*given),
        ):
            np.testing.assert_array_equal(same, first)
        other = dot_product_attention(*given, dropout_rate=0.4, dropout_key=jax.random.key(8))
        assert (other != first).any()

    def test_gradients_use_the_same_decisions(self) -> None:
        q, k, v = operands()

        def attend(v: jax.Array) -> jax.Array:
            return dot_product_attention(q, k, v, **DROPOUT)

        # Linear in the value: its gradient is exact.
        out, pull = jax.vjp(attend, v)
        (grad,) = pull(jnp.ones_like(out))
        np.testing.assert_allclose((grad * v).sum(), out.sum(), rtol=1e-4)
        (again,) = jax.vjp(jax.checkpoint(attend), v)[1](jnp.ones_like(out))
        np.testing.assert_array_equal(again, grad)

    def test_rate_0_needs_no_key(self) -> None:
        given = operands()
        found = dot_product_attention(*given, dropout_rate=0.0, dropout_key=jax.random.key(0))
        np.testing.assert_array_equal(found, dot_product_attention(*given))


class TestEmpty:
    @pytest.mark.parametrize(
        ("q", "k", "v"),
        [
            ((0, T, N, H), (0, S, K, H), None),
            ((B, 0, N, H), (B, S, K, H), None),
            ((B, T, N, H), (B, 0, K, H), None),
            ((B, 0, N, H), (B, 0, K, H), None),
            ((B, T, 0, H), (B, S, 0, H), None),
            ((B, T, N, 0), (B, S, K, 0), (B, S, K, H)),
            ((B, T, N, H), (B, S, K, H), (B, S, K, 0)),
            ((0, N, H), (S, K, H), None),
        ],
    )
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_shapes_and_gradients(
        self, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...] | None, is_causal: bool
    ) -> None:
        given = operands(q, k, v)

        def attend(*x: jax.Array) -> tuple[jax.Array, jax.Array]:
            return dot_product_attention(*x, is_causal=is_causal, return_residual=True)

        out, pull, lse = jax.vjp(attend, *given, has_aux=True)
        assert out.shape == (*q[:-1], given[2].shape[-1])
        assert lse.shape == q[:-1]
        assert not np.isnan(out).any()
        for gradient, operand in zip(pull(out), given, strict=True):
            assert gradient.shape == operand.shape
            assert not np.isnan(gradient).any()

    def test_no_keys(self) -> None:
        q, k, v = operands(k=(B, 0, K, H))
        out, lse = dot_product_attention(q, k, v, return_residual=True)
        assert (out == 0).all()
        assert (lse == -jnp.inf).all()
        assert (jax.grad(lambda q: dot_product_attention(q, k, v).sum())(q) == 0).all()

    def test_no_head_dim_averages(self) -> None:
        q, k, v = operands((B, T, N, 0), (B, S, N, 0), (B, S, N, H))
        out, lse = dot_product_attention(q, k, v, return_residual=True)
        np.testing.assert_allclose(out, jnp.broadcast_to(v.mean(1)[:, None], out.shape), atol=1e-6)
        np.testing.assert_allclose(lse, np.log(S), rtol=1e-6)


def bad(name: str, error: type[Exception], says: str, **change: Any) -> Any:
    return pytest.param(error, says, change, id=name)


F32 = jnp.float32
QUERY = jnp.ones((B, T, N, H))
KEY = jnp.ones((B, S, K, H))

BAD = [
    bad("rank 5", ValueError, "query has shape", query=QUERY[None]),
    bad("rank 0", ValueError, "key has shape", key=jnp.float32(1)),
    bad("rank 5 value", ValueError, "value has shape", value=KEY[None]),
    bad("list", TypeError, "query is of type list", query=[[1.0]]),
    bad("none", TypeError, "key is of type NoneType", key=None),
    bad("float", TypeError, "value is of type float", value=1.0),
    bad(
        "struct",
        TypeError,
        "query is of type ShapeD",
        query=jax.ShapeDtypeStruct((B, T, N, H), F32),
    ),
    bad("object", TypeError, "query has dtype object", query=np.full((B, T, N, H), None)),
    bad("text", TypeError, "key has dtype str", key=np.full((B, S, K, H), "a")),
    bad("int32", TypeError, "query has dtype int32", query=QUERY.astype(jnp.int32)),
    bad("int8", TypeError, "key has dtype int8", key=KEY.astype(jnp.int8)),
    bad("bool", TypeError, "value has dtype bool", value=KEY.astype(bool)),
    bad("complex", TypeError, "query has dtype complex64", query=QUERY.astype(jnp.complex64)),
    bad(
        "float8", TypeError, "query has dtype float8_e4m3fn", query=QUERY.astype(jnp.float8_e4m3fn)
    ),
    bad("key type", TypeError, "key has dtype bfloat16", key=KEY.astype(jnp.bfloat16)),
    bad("value type", TypeError, "value has dtype float16", value=KEY.astype(jnp.float16)),
    bad("prng key", TypeError, "query has dtype key", query=jax.random.key(0)[None]),
    bad("batch", ValueError, "key has batch size 3", key=jnp.ones((3, S, K, H))),
    bad("batch of one", ValueError, "key has batch size 1", key=KEY[:1]),
    bad("value batch", ValueError, "value has batch size 1", value=KEY[:1]),
    bad("batch of rank 3", ValueError, "key has batch size 1", key=KEY[0]),
    bad(
        "head ratio",
        ValueError,
        "key has 3; the query",
        key=jnp.ones((B, S, 3, H)),
        value=jnp.ones((B, S, 3, H)),
    ),
    bad(
        "more key heads",
        ValueError,
        "query has 4 heads",
        key=jnp.ones((B, S, 8, H)),
        value=jnp.ones((B, S, 8, H)),
    ),
    bad("no key heads", ValueError, "query has 4 heads", key=KEY[:, :, :0], value=KEY[:, :, :0]),
    bad("value heads", ValueError, "value has 1 heads", value=KEY[:, :, :1]),
    bad("value tokens", ValueError, "value has 6 tokens", value=KEY[:, 1:]),
    bad("head dim", ValueError, "key has head_dim 4", key=KEY[..., :4]),
    bad("scale array", TypeError, "scale", scale=jnp.ones(3)),
    bad("scale text", TypeError, "scale", scale="1"),
    bad("scale complex", TypeError, "scale", scale=1j),
    bad("scale nan", ValueError, "scale", scale=float("nan")),
    bad("implementation", TypeError, "implementation", implementation=["cudnn"]),
    bad("alignment list", ValueError, "causal_alignment", causal_alignment=["top_left"]),
    bad("scale huge", ValueError, "scale", scale=10**400),
    bad("scale float32", ValueError, "finite in float32", scale=1e39),
    bad("scale bool", TypeError, "scale", scale=True),
    bad("is_causal", TypeError, "is_causal", is_causal="yes"),
    bad("is_causal None", TypeError, "is_causal", is_causal=None),
    bad("return_residual", TypeError, "return_residual", return_residual="yes"),
    bad("deterministic", TypeError, "deterministic", deterministic="no"),
    bad("alignment", ValueError, "causal_alignment", causal_alignment="middle"),
    bad("alignment None", ValueError, "causal_alignment", causal_alignment=None),
    bad("implementation", ValueError, "implementation", implementation="flash"),
    bad("bias type", TypeError, "bias has dtype bfloat16", bias=jnp.ones((T, S), jnp.bfloat16)),
    bad("bias is a bool", TypeError, "bias has dtype bool", bias=jnp.ones((T, S), bool)),
    bad("bias shape", ValueError, r"bias has shape \[5, 6\]", bias=jnp.ones((T, 6))),
    bad("bias rank", ValueError, "bias has shape", bias=jnp.ones((1, B, N, T, S))),
    bad("bias heads", ValueError, "bias has shape", bias=jnp.ones((B, K, T, S))),
    bad("bias list", TypeError, "bias is of type list", bias=[1.0]),
    bad("mask type", TypeError, "mask has dtype float32", mask=jnp.ones((T, S))),
    bad("mask shape", ValueError, "mask has shape", mask=jnp.ones((T, 2), bool)),
    bad("mask True", TypeError, "mask is of type bool", mask=True),
    bad("lengths type", TypeError, "query_seq_lengths has dtype", query_seq_lengths=jnp.ones(B)),
    bad("uint", TypeError, "query_seq_lengths", query_seq_lengths=jnp.ones(B, jnp.uint8)),
    bad("no array", TypeError, "query_seq_lengths is of type list", query_seq_lengths=[1, 2]),
    bad(
        "lengths shape",
        ValueError,
        r"key_value_seq_lengths has shape \[3\]; expected \[2\]",
        key_value_seq_lengths=jnp.ones(3, jnp.int32),
    ),
    bad("one length", ValueError, "query_seq_lengths", query_seq_lengths=jnp.int32(3)),
    bad("window text", TypeError, "local_window_size", local_window_size="3"),
    bad("window float", TypeError, "local_window_size", local_window_size=3.0),
    bad("window bool", TypeError, "local_window_size", local_window_size=True),
    bad("window triple", TypeError, "local_window_size", local_window_size=(1, 2, 3)),
    bad("window negative", ValueError, "local_window_size", local_window_size=-1),
    bad("window negative part", ValueError, "local_window_size", local_window_size=(3, -2)),
    bad("softmax", ValueError, "softmax = 'fast'", softmax="fast"),
    bad("softmax None", ValueError, "softmax = None", softmax=None),
    bad("no sink", ValueError, "needs a sink", softmax="learnable"),
    bad("two sinks", ValueError, "off_by_one", softmax="off_by_one", sink=jnp.ones(N)),
    bad("sink shape", ValueError, r"sink has shape \[2\]; expected \[4\]", sink=jnp.ones(K)),
    bad("sink type", TypeError, "sink has dtype int32", sink=jnp.ones(N, jnp.int32)),
    bad("sink number", TypeError, "sink is of type float", sink=1.0),
    bad("softcap 0", ValueError, "softcap = 0", softcap=0),
    bad("softcap negative", ValueError, "softcap = -1", softcap=-1.0),
    bad("softcap infinite", ValueError, "softcap = inf", softcap=float("inf")),
    bad("softcap nan", ValueError, "softcap = nan", softcap=float("nan")),
    bad("softcap beyond float32", ValueError, r"softcap = 1e\+39", softcap=1e39),
    bad("softcap below float32", ValueError, "softcap = 1e-50", softcap=1e-50),
    bad("softcap text", TypeError, "softcap", softcap="1"),
    bad("alibi text", TypeError, "alibi is of type str", alibi="yes"),
    bad("alibi None", TypeError, "alibi is of type NoneType", alibi=None),
    bad("alibi shape", ValueError, "alibi has shape", alibi=jnp.ones(3)),
    bad("alibi type", TypeError, "alibi has dtype int32", alibi=jnp.ones(N, jnp.int32)),
    bad("score_mod", TypeError, "score_mod is a float", score_mod=1.0),
    bad(
        "bprop alone",
        ValueError,
        "score_mod_bprop is given without",
        score_mod_bprop=lambda graph, grad, score: grad,
    ),
    bad("args alone", ValueError, "score_mod_args is given without", score_mod_args=(1.0,)),
    bad("args", TypeError, "score_mod_args is a float", score_mod_args=1.0),
    bad(
        "args shape",
        ValueError,
        r"score_mod_args\[0\] has shape \[3\]",
        score_mod=lambda graph, score, x: score,
        score_mod_args=(jnp.ones(3),),
    ),
    bad(
        "args type",
        TypeError,
        r"score_mod_args\[1\] has dtype int8",
        score_mod=lambda graph, score, x, y: score,
        score_mod_args=(1.0, jnp.ones(S, jnp.int8)),
    ),
    bad(
        "args bool",
        TypeError,
        r"score_mod_args\[0\] has dtype bool; expected .* or int32 \(instead of a bool tensor",
        score_mod=lambda graph, score, x: score,
        score_mod_args=(jnp.ones(S, bool),),
    ),
    *(
        bad(
            f"args {number}",
            ValueError,
            rf"score_mod_args\[0\] = {re.escape(str(number))}; expected .* finite in float32",
            score_mod=lambda graph, score, x: score * x,
            score_mod_args=(number,),
        )
        for number in (float("inf"), float("nan"), 1e39)
    ),
    bad("mod returns", TypeError, "score_mod returned", score_mod=lambda graph, score: None),
    bad("segments type", TypeError, "segment_ids has dtype", segment_ids=jnp.ones((B, T))),
    bad("segments shape", ValueError, "segment_ids has", segment_ids=jnp.ones((B, T), jnp.int32)),
    bad("segments triple", ValueError, "segment_ids has 3 parts", segment_ids=(1, 2, 3)),
    bad(
        "segments scalar",
        TypeError,
        r"segment_ids is of type int; expected .* a pair",
        segment_ids=3,
    ),
    bad(
        "segments of queries alone",
        ValueError,
        r"segment_ids has shape \[2, 5\]; expected a pair of the queries' \[2, 5\] and the keys' "
        r"\[2, 7\]",
        segment_ids=jnp.ones((B, T), jnp.int32),
    ),
    bad(
        "segments without keys",
        TypeError,
        r"segment_ids\[1\] is of type NoneType; .* integers \[2, 7\] of the keys",
        segment_ids=(jnp.ones((B, T), jnp.int32), None),
    ),
    bad(
        "segments without queries",
        TypeError,
        r"segment_ids\[0\] is of type NoneType; .* integers \[2, 5\] of the queries",
        segment_ids=(None, jnp.ones((B, S), jnp.int32)),
    ),
    bad(
        "segments of keys, type",
        TypeError,
        r"segment_ids\[1\] has dtype float32; expected integers \[2, 7\] of the keys",
        segment_ids=(jnp.ones((B, T), jnp.int32), jnp.ones((B, S))),
    ),
    bad(
        "segments beyond int32",
        ValueError,
        r"segment_ids\[0\] has ids that int32 cannot hold",
        segment_ids=(np.full((B, T), 2**32), jnp.ones((B, S), jnp.int32)),
    ),
    bad("rate 1", ValueError, "dropout_rate = 1.0", dropout_rate=1.0),
    bad("rate negative", ValueError, "dropout_rate = -0.1", dropout_rate=-0.1),
    bad("rate nan", ValueError, "dropout_rate = nan", dropout_rate=float("nan")),
    bad("rate text", TypeError, "dropout_rate", dropout_rate="0.1"),
    bad("no key", ValueError, "needs a dropout_key", dropout_rate=0.1),
    bad("int key", TypeError, "dropout_key is int", dropout_rate=0.1, dropout_key=3),
    bad("float key", TypeError, "dropout_key is float32", dropout_key=jnp.ones(2)),
    bad(
        "keys", ValueError, "dropout_key has shape", dropout_key=jax.random.split(jax.random.key(0))
    ),
    bad("raw keys", ValueError, "dropout_key", dropout_key=jnp.ones((2, 2), jnp.uint32)),
    bad("max_logit", TypeError, "return_max_logit", return_max_logit="yes"),
    bad("slack", TypeError, "slack_is_finite", slack_is_finite=None),
]


@pytest.mark.parametrize("flag", [1, np.True_, True])
def test_flags_however_spelled(flag: Any) -> None:
    out, _ = dot_product_attention(*operands(), is_causal=flag, return_residual=flag)
    np.testing.assert_array_equal(out, dot_product_attention(*operands(), is_causal=True))


@pytest.mark.parametrize("scale", [-0.3, 0.0, 1e-45])
def test_any_scale(scale: float) -> None:
    """Negative ones and 0 never reach a kernel, see sdpa_core.positive_scale."""
    found = dot_product_attention(*operands(), scale=scale)
    wanted = jax.nn.dot_product_attention(*operands(), scale=scale)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


class TestBadInput:
    @pytest.mark.parametrize(("error", "says", "change"), BAD)
    def test_is_refused_by_name(
        self, error: type[Exception], says: str, change: dict[str, Any]
    ) -> None:
        arguments = {"query": QUERY, "key": KEY, "value": KEY, **change}
        with pytest.raises(error, match=says):
            dot_product_attention(**arguments)

    def test_float64_without_64_bit_types(self) -> None:
        with jax.enable_x64(True):
            wide = jnp.ones((B, T, N, H), jnp.float64)
        with pytest.raises(TypeError, match="query has dtype float64, but 64-bit types are off"):
            dot_product_attention(wide, wide, wide)

    def test_symbolic_shapes(self) -> None:
        (batch,) = jax.export.symbolic_shape("batch")
        operand = jax.ShapeDtypeStruct((batch, T, N, H), jnp.float32)
        with pytest.raises(NoBackendError, match="query has the symbolic shape"):
            jax.eval_shape(dot_product_attention, operand, operand, operand)

    def test_same_inside_jit(self) -> None:
        with pytest.raises(ValueError, match="value has 6 tokens"):
            jax.jit(dot_product_attention)(QUERY, KEY, KEY[:, 1:])

    def test_traced_scale(self) -> None:
        with pytest.raises(TypeError, match="scale is traced"):
            jax.jit(lambda s: dot_product_attention(QUERY, KEY, KEY, scale=s))(0.5)

    def test_unknown_argument(self) -> None:
        with pytest.raises(TypeError, match="windw"):
            dot_product_attention(QUERY, KEY, KEY, windw=3)


class TestPending:
    @pytest.mark.parametrize("value", [jnp.ones(3), 0.25, "other"])
    def test_recipe_is_refused(self, value: object) -> None:
        with pytest.raises(NoBackendError, match="recipe = "):
            dot_product_attention(QUERY, KEY, KEY, recipe=value)
        with pytest.raises(NoBackendError, match="recipe = "):
            explain(QUERY, KEY, KEY, recipe=value)
