"""The public function: its signature, agreement with jax.nn, and what it refuses."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_core import NoBackendError
from sdpa_core.pending import PENDING
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


PENDING_HERE = sorted(PENDING.keys() & inspect.signature(dot_product_attention).parameters.keys())


class TestPending:
    def test_every_other_argument_works(self) -> None:
        names = inspect.signature(dot_product_attention).parameters.keys()
        assert names - set(PENDING_HERE) == {
            *("query", "key", "value", "scale", "is_causal", "implementation"),
            *("return_residual", "causal_alignment", "deterministic"),
        }

    def test_defaults_are_what_is_implemented(self) -> None:
        parameters = inspect.signature(dot_product_attention).parameters
        assert {name: parameters[name].default for name in PENDING_HERE} == {
            name: PENDING[name] for name in PENDING_HERE
        }

    @pytest.mark.parametrize("name", PENDING_HERE)
    @pytest.mark.parametrize("value", [jnp.ones((B, N, T, S)), 0.25, "other"])
    def test_is_refused(self, name: str, value: object) -> None:
        with pytest.raises(NoBackendError, match=f"{name} = "):
            dot_product_attention(QUERY, KEY, KEY, **{name: value})
        with pytest.raises(NoBackendError, match=f"{name} = "):
            explain(QUERY, KEY, KEY, **{name: value})
