"""JAX's transforms, on the reference and on the cuDNN path with a fake cuDNN."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_jax import dot_product_attention
from sdpa_jax.testing import fake_cudnn

B, T, N, H = 2, 6, 2, 8
DTYPE = jnp.bfloat16

attend = partial(dot_product_attention, is_causal=True)


@pytest.fixture(params=["reference", "fake cuDNN"], autouse=True)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "reference":
        yield request.param
        return
    with fake_cudnn():
        yield request.param


def array(*shape: int, seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape).astype(DTYPE)


def loss(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    weights = jnp.arange(query.size, dtype=jnp.float32).reshape(query.shape) / query.size
    return (attend(query, key, value).astype(jnp.float32) * weights).sum()


def assert_same(one: Any, other: Any) -> None:
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=2e-2, atol=2e-2)


def stacked(function: Callable[..., Any], count: int, *operands: Any) -> Any:
    """What ``vmap`` must give: one call after the other."""
    results = [
        function(*(x[i] if is_mapped else x for x, is_mapped in operands)) for i in range(count)
    ]
    return jax.tree.map(lambda *xs: jnp.stack(xs), *results)


def count(primitive: str, jaxpr: Any) -> int:
    """How often a primitive runs, loops counted once."""
    total = 0
    for equation in jaxpr.eqns:
        inner = jax.tree.leaves(list(equation.params.values()), is_leaf=has_equations)
        total += equation.primitive.name == primitive
        total += sum(count(primitive, x) for x in inner if has_equations(x))
    return total


def has_equations(x: Any) -> bool:
    return hasattr(x, "eqns")


QKV = (array(B, T, N, H), array(B, T, N, H, seed=1), array(B, T, N, H, seed=2))


class TestCompilation:
    def test_jit(self) -> None:
        assert_same(jax.jit(attend)(*QKV), attend(*QKV))

    def test_jit_of_grad(self) -> None:
        grad = jax.grad(loss, (0, 1, 2))
        assert_same(jax.jit(grad)(*QKV), grad(*QKV))

    def test_disable_jit(self) -> None:
        expected = jax.value_and_grad(loss, (0, 1, 2))(*QKV)
        with jax.disable_jit():
            assert_same(jax.value_and_grad(loss, (0, 1, 2))(*QKV), expected)

    def test_eval_shape(self) -> None:
        out, lse = jax.eval_shape(partial(attend, return_residual=True), *QKV)
        assert (out.shape, out.dtype) == ((B, T, N, H), DTYPE)
        assert (lse.shape, lse.dtype) == ((B, T, N), jnp.float32)

    @pytest.mark.filterwarnings("ignore:Some donated buffers")
    def test_donation(self) -> None:
        expected = attend(*QKV)
        copies = [jnp.array(x, copy=True) for x in QKV]
        assert_same(jax.jit(attend, donate_argnums=(0, 1, 2))(*copies), expected)

    def test_jit_keeps_contexts_apart(self, path: str) -> None:
        jitted = jax.jit(attend)
        expected = jitted(*QKV)
        with fake_cudnn() as fake:
            assert_same(jitted(*QKV), expected)
            assert len(fake.executed) == 1
        before = len(fake.executed)
        jitted(*QKV)
        assert len(fake.executed) == before


class TestGradients:
    def test_partial(self) -> None:
        full = jax.grad(loss, (0, 1, 2))(*QKV)
        for i in range(3):
            assert_same(jax.grad(loss, i)(*QKV), full[i])

    def test_inference_computes_no_lse(self) -> None:
        assert "f32" not in str(jax.make_jaxpr(attend)(*QKV))
        assert "f32[2,2,6]" in str(jax.make_jaxpr(partial(attend, return_residual=True))(*QKV))

    def test_second_order_is_refused(self) -> None:
        def slope(query: jax.Array) -> jax.Array:
            return jax.grad(lambda q: attend(q, *QKV[1:]).astype(float).sum())(query).sum()

        with pytest.raises(NotImplementedError, match="second derivative"):
            jax.grad(slope)(QKV[0])

    def test_forward_mode_is_refused(self) -> None:
        with pytest.raises(TypeError, match="custom_vjp"):
            jax.jvp(attend, QKV, QKV)


class TestVmap:
    @pytest.mark.parametrize(
        "mapped",
        [(True, True, True), (True, False, False), (False, True, True), (True, True, False)],
    )
    def test_in_axes(self, mapped: tuple[bool, ...]) -> None:
        operands = [
            array(3, *x.shape, seed=i) if is_mapped else x
            for i, (x, is_mapped) in enumerate(zip(QKV, mapped, strict=True))
        ]
        in_axes = [0 if is_mapped else None for is_mapped in mapped]
        paired = tuple(zip(operands, mapped, strict=True))
        for function in (attend, jax.grad(loss, (0, 1, 2))):
            found = jax.vmap(function, in_axes)(*operands)
            assert_same(found, stacked(function, 3, *paired))

    def test_other_axis(self) -> None:
        operands = [jnp.stack([x, 2 * x], axis=2) for x in QKV]
        expected = jnp.stack([attend(*QKV), attend(*(2 * x for x in QKV))], axis=2)
        assert_same(jax.vmap(attend, 2, 2)(*operands), expected)

    def test_nested(self) -> None:
        operands = [array(2, 3, *x.shape, seed=i) for i, x in enumerate(QKV)]
        found = jax.vmap(jax.vmap(attend))(*operands)
        flat = jax.vmap(attend)(*(x.reshape(6, *x.shape[2:]) for x in operands))
        assert_same(found, flat.reshape(found.shape))

    def test_grad_of_vmap(self) -> None:
        operands = [array(3, *x.shape, seed=i) for i, x in enumerate(QKV)]
        found = jax.grad(lambda *x: jax.vmap(loss)(*x).sum(), (0, 1, 2))(*operands)
        assert_same(found, jax.vmap(jax.grad(loss, (0, 1, 2)))(*operands))

    def test_residual(self) -> None:
        operands = [array(3, *x.shape, seed=i) for i, x in enumerate(QKV)]
        function = partial(attend, return_residual=True)
        found = jax.vmap(function)(*operands)
        assert_same(found, stacked(function, 3, *((x, True) for x in operands)))

    def test_axis_of_length_0(self) -> None:
        found = jax.vmap(attend)(*(x[None][:0] for x in QKV))
        assert found.shape == (0, B, T, N, H)


#: Operands by name with their shapes, for one example.
FEATURES: dict[str, tuple[int, ...]] = {
    "query": (B, T, N, H),
    "key": (B, T, N, H),
    "value": (B, T, N, H),
    "bias": (1, N, T, T),
    "sink": (N,),
    "query_seq_lengths": (B,),
    "key_value_seq_lengths": (B,),
}


def example(name: str, seed: int) -> jax.Array:
    if name.endswith("lengths"):
        return jax.random.randint(jax.random.key(seed), FEATURES[name], 0, T + 1)
    operand = array(*FEATURES[name], seed=seed + list(FEATURES).index(name))
    return operand.astype(jnp.float32) if name == "sink" else operand


def loss_of(names: tuple[str, ...]) -> Callable[..., jax.Array]:
    """Of operands with these names."""

    def of(*operands: jax.Array) -> jax.Array:
        given = dict(zip(names, operands, strict=True))
        first = [given.pop(name) for name in ("query", "key", "value")]
        out = dot_product_attention(*first, **given)
        weights = jnp.arange(out.size, dtype=jnp.float32).reshape(out.shape) / out.size
        return (out.astype(jnp.float32) * weights).sum()

    return of


class TestVmapOfFeatures:
    """Mapped over any subset of operands: values and gradients are those of a loop."""

    @pytest.mark.parametrize(
        "further",
        [("bias",), ("sink",), ("query_seq_lengths", "key_value_seq_lengths")],
        ids=lambda names: names[0],
    )
    @pytest.mark.parametrize("which", range(4))
    def test_every_subset(self, further: tuple[str, ...], which: int) -> None:
        names = ("query", "key", "value", *further)
        mapped = [which & 1, which & 2, which & 2, *(3 - which & 1 for _ in further)]
        if not any(mapped):
            mapped[0] = 1
        operands = [
            jnp.stack([example(name, 10 * i) for i in range(3)]) if is_mapped else example(name, 0)
            for name, is_mapped in zip(names, mapped, strict=True)
        ]
        wanted = tuple(i for i, name in enumerate(names) if not name.endswith("lengths"))
        function = jax.value_and_grad(loss_of(names), wanted)
        found = jax.vmap(function, [0 if m else None for m in mapped])(*operands)
        assert_same(found, stacked(function, 3, *zip(operands, mapped, strict=True)))

    def test_gradient_of_a_shared_bias_is_the_sum(self) -> None:
        names = ("query", "key", "value", "bias")
        operands = [jnp.stack([example(name, i) for i in range(3)]) for name in names[:3]]
        bias = example("bias", 0)

        def total(bias: jax.Array) -> jax.Array:
            return jax.vmap(loss_of(names), (0, 0, 0, None))(*operands, bias).sum()

        each = jax.vmap(jax.grad(loss_of(names), 3), (0, 0, 0, None))(*operands, bias)
        assert_same(jax.grad(total)(bias), each.astype(jnp.float32).sum(0).astype(bias.dtype))

    def test_largest_logits_of_each_example(self) -> None:
        operands = [array(3, *x.shape, seed=i) for i, x in enumerate(QKV)]
        function = partial(attend, return_max_logit=True, implementation="reference")
        found = jax.vmap(function)(*operands)
        assert_same(found, stacked(function, 3, *((x, True) for x in operands)))

    def test_examples_without_a_batch(self) -> None:
        """One length for each example of ``[T, N, H]``, and a mask made inside."""
        operands = [array(3, T, N, H, seed=i) for i in range(3)]
        lengths = jnp.array([2, 6, 0])

        def one(query: jax.Array, key: jax.Array, value: jax.Array, n: jax.Array) -> jax.Array:
            mask = jnp.arange(T) < T - 1
            return attend(query, key, value, mask=mask, key_value_seq_lengths=n)

        found = jax.vmap(one)(*operands, lengths)
        assert_same(found, stacked(one, 3, *((x, True) for x in (*operands, lengths))))

    def test_segments_of_each_example(self) -> None:
        operands = [array(3, T, N, H, seed=i) for i in range(3)]
        ids = jnp.arange(3 * T).reshape(3, T) // 4

        def one(*x: jax.Array) -> jax.Array:
            return attend(*x[:3], segment_ids=x[3])

        found = jax.vmap(one)(*operands, ids)
        assert_same(found, stacked(one, 3, *((x, True) for x in (*operands, ids))))

    def test_sum_of_examples_with_one_score_mod(self) -> None:
        """The function reads the number of the sequence, which is the example's own."""

        def mod(graph: Any, score: Any, x: Any) -> Any:
            return score * (1.0 + graph.to_float(graph.gen_index(score, 0))) + x

        def one(query: jax.Array, x: jax.Array) -> jax.Array:
            return dot_product_attention(query, *QKV[1:], score_mod=mod, score_mod_args=(x,))

        queries, x = array(3, *QKV[0].shape), array(3, T, T).astype(jnp.float32)
        assert_same(jax.vmap(one)(queries, x), stacked(one, 3, (queries, True), (x, True)))

    @pytest.mark.parametrize("keys_are_mapped", [False, True])
    def test_dropout(self, keys_are_mapped: bool) -> None:
        """An example drops what its key says, wherever in a batch it is."""
        queries = array(3, *QKV[0].shape)
        key = jax.random.key(5)
        keys = jax.random.split(key, 3) if keys_are_mapped else key

        def one(query: jax.Array, key: jax.Array) -> jax.Array:
            return attend(query, *QKV[1:], dropout_rate=0.5, dropout_key=key)

        found = jax.vmap(one, (0, 0 if keys_are_mapped else None))(queries, keys)
        assert_same(found, stacked(one, 3, (queries, True), (keys, keys_are_mapped)))

    def test_nested(self) -> None:
        names = ("query", "key", "value", "bias")
        outer = [jnp.stack([example(n, i) for i in range(2)]) for n in names[:3]]
        biases = jnp.stack([example("bias", i) for i in range(3)])
        function = jax.vmap(jax.vmap(loss_of(names), (None, None, None, 0)), (0, 0, 0, None))
        expected = [
            [loss_of(names)(*(x[i] for x in outer), bias) for bias in biases] for i in range(2)
        ]
        assert_same(function(*outer, biases), jnp.array(expected))

    def test_jacobian(self) -> None:
        query, key, value = (array(1, 2, 1, 8, seed=i).astype(jnp.bfloat16) for i in range(3))
        found = jax.jacrev(lambda q: dot_product_attention(q, key, value).astype(jnp.float32))(
            query
        )
        assert found.shape == (*query.shape, *query.shape)
        (column,) = jax.vjp(
            lambda q: dot_product_attention(q, key, value).astype(jnp.float32)[0, 0, 0, 3], query
        )[1](1.0)
        assert_same(found[0, 0, 0, 3], column)


class TestGradientsAreComputedWhereTheyAreWanted:
    """A frozen bias or sink costs nothing."""

    def gradients(self, wanted: int | tuple[int, ...]) -> int:
        names = ("query", "key", "value", "bias", "sink")
        operands = [example(name, 0) for name in names]
        jaxpr = jax.make_jaxpr(jax.grad(loss_of(names), wanted))(*operands).jaxpr
        return results_of("sdpa_backward", jaxpr)

    def test_frozen(self) -> None:
        assert self.gradients((0, 1, 2)) == 3
        assert self.gradients((0, 3)) == 4
        assert self.gradients((0, 4)) == 4
        assert self.gradients((3, 4)) == 5

    def test_mask_is_no_bias_to_be_trained(self) -> None:
        mask = jnp.ones((T, T), bool)
        function = jax.grad(lambda q: attend(q, *QKV[1:], mask=mask).astype(jnp.float32).sum())
        assert results_of("sdpa_backward", jax.make_jaxpr(function)(QKV[0]).jaxpr) == 3

    @pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint], ids=["jit", "checkpoint"])
    def test_inside_other_transforms(self, wrap: Callable[..., Any]) -> None:
        names = ("query", "key", "value", "bias", "sink")
        operands = [example(name, 0) for name in names]
        function = jax.grad(wrap(loss_of(names)), 0)
        assert results_of("sdpa_backward", jax.make_jaxpr(function)(*operands).jaxpr) == 3
        assert_same(function(*operands), jax.grad(loss_of(names))(*operands))


def results_of(primitive: str, jaxpr: Any) -> int:
    """How many results the only use of a primitive has."""
    found: list[int] = []

    def walk(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            if equation.primitive.name == primitive:
                found.append(len(equation.outvars))
            inner = jax.tree.leaves(list(equation.params.values()), is_leaf=has_equations)
            for x in inner:
                if has_equations(x):
                    walk(x)

    walk(jaxpr)
    (count,) = found
    return count


class TestScanAndCheckpoint:
    def layers(self, query: jax.Array) -> jax.Array:
        def layer(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return attend(x, x, x), None

        return jax.lax.scan(layer, query, None, length=3)[0]

    def test_scan(self) -> None:
        x = QKV[0]
        for _ in range(3):
            x = attend(x, x, x)
        assert_same(self.layers(QKV[0]), x)

    def test_grad_of_scan(self) -> None:
        def unrolled(x: jax.Array) -> jax.Array:
            for _ in range(3):
                x = attend(x, x, x)
            return x.astype(jnp.float32).sum()

        found = jax.grad(lambda x: self.layers(x).astype(jnp.float32).sum())(QKV[0])
        assert_same(found, jax.grad(unrolled)(QKV[0]))

    def test_checkpoint(self) -> None:
        assert_same(jax.grad(jax.checkpoint(loss))(*QKV), jax.grad(loss)(*QKV))

    def test_saved_names_keep_the_kernel_from_running_again(self) -> None:
        def runs(function: Callable[..., Any]) -> int:
            return count("sdpa_forward", jax.make_jaxpr(jax.grad(function))(*QKV).jaxpr)

        names = jax.checkpoint_policies.save_only_these_names("sdpa_out", "sdpa_lse")
        saving = jax.checkpoint(loss, policy=names)
        assert runs(loss) == 1
        assert runs(jax.checkpoint(loss)) == 2
        assert runs(saving) == 1
        assert_same(jax.grad(saving)(*QKV), jax.grad(loss)(*QKV))


def unused(*operands: jax.Array) -> jax.Array:
    out, _ = attend(*operands, return_residual=True)
    return out.astype(jnp.float32).sum()


def used(*operands: jax.Array) -> jax.Array:
    out, lse = attend(*operands, return_residual=True)
    return out.astype(jnp.float32).sum() + lse.sum()


def both(*operands: jax.Array) -> tuple[jax.Array, jax.Array]:
    return attend(*operands, return_residual=True)


def total(results: tuple[jax.Array, jax.Array], with_lse: bool) -> jax.Array:
    out, lse = results
    return out.astype(jnp.float32).sum() + (lse.sum() if with_lse else 0.0)


def scanned(query: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.lax.scan(lambda x, _: both(x, x, x), query, None, length=2)


class TestGradientOfResidual:
    @pytest.mark.parametrize(
        "wrap",
        [
            jax.grad,
            lambda f: jax.jit(jax.grad(f)),
            lambda f: jax.grad(jax.jit(f)),
            lambda f: jax.grad(jax.checkpoint(f)),
            lambda f: jax.grad(lambda *x: jax.vmap(f)(*(y[None] for y in x)).sum()),
        ],
        ids=["grad", "jit of grad", "grad of jit", "checkpoint", "vmap"],
    )
    def test_used_or_not(self, wrap: Callable[..., Any]) -> None:
        assert wrap(unused)(*QKV).shape == QKV[0].shape
        with pytest.raises(NotImplementedError, match="log-sum-exp"):
            wrap(used)(*QKV)

    @pytest.mark.parametrize(
        "results",
        [jax.jit(both), jax.checkpoint(both), lambda q, *_: scanned(q)],
        ids=["jit", "checkpoint", "scan"],
    )
    def test_returned_and_dropped(self, results: Callable[..., Any]) -> None:
        grad = jax.grad(lambda *x: total(results(*x), with_lse=False))
        assert grad(*QKV).shape == QKV[0].shape
        with pytest.raises(NotImplementedError, match="log-sum-exp"):
            jax.grad(lambda *x: total(results(*x), with_lse=True))(*QKV)

    def test_stopped(self) -> None:
        def stopped(*operands: jax.Array) -> jax.Array:
            out, lse = both(*operands)
            return total((out, jax.lax.stop_gradient(lse)), with_lse=True)

        assert_same(jax.grad(stopped)(*QKV), jax.grad(unused)(*QKV))
