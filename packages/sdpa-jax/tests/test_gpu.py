"""On a CUDA device: ``pytest -m gpu``. Without one these tests fail; they are never skipped."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_core import DeviceSpec, DType
from sdpa_core.testing import CASES, LARGE_CASES
from sdpa_core.testing.conformance import ConformanceSuite
from sdpa_jax import SlowAttentionWarning, dot_product_attention, explain
from sdpa_jax.cudnn import TARGET
from sdpa_jax.device import device_spec
from sdpa_jax.testing import JaxSubject

pytestmark = pytest.mark.gpu

attend = partial(dot_product_attention, is_causal=True, implementation="cudnn")


@pytest.fixture(scope="module")
def spec() -> DeviceSpec:
    return device_spec("cuda", True)


def array(*shape: int, seed: int = 0, dtype: Any = jnp.bfloat16) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


QKV_SHAPE = (2, 192, 4, 64)


@pytest.fixture
def qkv() -> tuple[jax.Array, ...]:
    return tuple(array(*QKV_SHAPE, seed=seed) for seed in range(3))


def loss(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    weights = jnp.linspace(-1, 1, query.size).reshape(query.shape)
    return (attend(query, key, value).astype(jnp.float32) * weights).sum()


GRAD = jax.grad(loss, (0, 1, 2))


def assert_close(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=2e-2, atol=2e-2)


def assert_equal(found: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


class TestCudnn(ConformanceSuite):
    cases = CASES + LARGE_CASES

    @pytest.fixture
    def subject(self, spec: DeviceSpec) -> JaxSubject:
        return JaxSubject("jax cudnn", implementation="cudnn", spec=spec)


class TestReferenceOnCuda(ConformanceSuite):
    cases = tuple(case for case in CASES if case.dtype is DType.FLOAT32)

    @pytest.fixture
    def subject(self) -> JaxSubject:
        return JaxSubject("jax reference on CUDA", implementation="reference")


class TestChoice:
    def test_device(self, spec: DeviceSpec) -> None:
        assert spec.platform == "cuda"
        assert spec.sm >= 80
        assert spec.sm_count > 0
        assert spec.memory_bytes > 0
        assert spec.cudnn_version is not None
        assert spec.ordinal is not None

    def test_default_is_cudnn(self, qkv: tuple[jax.Array, ...]) -> None:
        assert explain(*qkv).forward.backend == "cudnn"
        text = jax.jit(dot_product_attention).lower(*qkv).as_text()
        assert TARGET in text

    @pytest.mark.parametrize("tokens", [1, 33, 64, 127, 192])
    def test_default_in_training(self, tokens: int) -> None:
        x = array(2, tokens, 2, 64)
        grad = jax.grad(lambda x: dot_product_attention(x, x, x).astype(jnp.float32).sum())
        if tokens == 1:
            with pytest.warns(SlowAttentionWarning, match="more than one token"):
                grad(x)
        else:
            assert np.isfinite(grad(x).astype(float)).all()

    def test_float32_warns(self) -> None:
        x = array(1, 40, 2, 24, dtype=jnp.float32)
        with pytest.warns(SlowAttentionWarning, match=r"query\.dtype"):
            dot_product_attention(x, x, x)

    def test_jitted_for_the_cpu_of_this_process(self, qkv: tuple[jax.Array, ...]) -> None:
        cpu = jax.devices("cpu")[0]
        there = [jax.device_put(x, cpu) for x in qkv]
        function = partial(dot_product_attention, is_causal=True)
        found = jax.jit(function)(*there)
        assert found.devices() == {cpu}
        assert_close(np.asarray(found), np.asarray(attend(*qkv)))
        with jax.default_device(cpu):
            assert explain(*there).forward.backend == "reference"


class TestTransforms:
    def test_jit(self, qkv: tuple[jax.Array, ...]) -> None:
        assert_equal(jax.jit(attend)(*qkv), attend(*qkv))
        assert_close(jax.jit(GRAD)(*qkv), GRAD(*qkv))

    @pytest.mark.parametrize("in_axes", [(0, 0, 0), (0, None, None), (None, 0, 0)])
    def test_vmap(self, qkv: tuple[jax.Array, ...], in_axes: tuple[int | None, ...]) -> None:
        stacked = [
            x if axis is None else jnp.stack([x, 2 * x])
            for x, axis in zip(qkv, in_axes, strict=True)
        ]
        for function in (attend, GRAD):
            found = jax.vmap(function, in_axes)(*stacked)
            for i in range(2):
                picked = (
                    x if axis is None else x[i] for x, axis in zip(stacked, in_axes, strict=True)
                )
                assert_close(jax.tree.map(lambda x, i=i: x[i], found), function(*picked))

    def test_scan(self, qkv: tuple[jax.Array, ...]) -> None:
        def scanned(x: jax.Array) -> jax.Array:
            x, _ = jax.lax.scan(lambda x, _: (attend(x, x, x), None), x, None, length=4)
            return x.astype(jnp.float32).sum()

        def unrolled(x: jax.Array) -> jax.Array:
            for _ in range(4):
                x = attend(x, x, x)
            return x.astype(jnp.float32).sum()

        assert_close(jax.jit(jax.grad(scanned))(qkv[0]), jax.jit(jax.grad(unrolled))(qkv[0]))

    def test_checkpoint(self, qkv: tuple[jax.Array, ...]) -> None:
        names = jax.checkpoint_policies.save_only_these_names("sdpa_out", "sdpa_lse")

        def calls(function: Callable[..., Any]) -> int:
            compiled = jax.jit(jax.grad(function)).lower(*qkv).compile()
            return compiled.as_text().count(f'custom_call_target="{TARGET}"')

        for policy in (None, names):
            wrapped = jax.checkpoint(loss, policy=policy)
            assert_close(jax.jit(jax.grad(wrapped))(*qkv), jax.grad(loss)(*qkv))
        assert calls(loss) == 2
        assert calls(jax.checkpoint(loss)) == 3
        assert calls(jax.checkpoint(loss, policy=names)) == 2

    def test_workspace_is_not_an_output(self, qkv: tuple[jax.Array, ...]) -> None:
        assert len(jax.tree.leaves(jax.jit(GRAD).lower(*qkv).compile().out_info)) == 3


class TestDeterminism:
    def test_gradients_have_the_same_bits(self) -> None:
        qkv = [array(2, 2048, 8, 128, seed=seed) for seed in range(3)]

        def exact(*x: jax.Array) -> jax.Array:
            return (attend(*x, deterministic=True).astype(jnp.float32) ** 2).sum()

        grad = jax.jit(jax.grad(exact, (0, 1, 2)))
        first = grad(*qkv)
        for _ in range(3):
            assert_equal(grad(*qkv), first)


CHAIN = """
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from sdpa_jax import dot_product_attention

def chain(x, implementation):
    for _ in range(10):
        x = dot_product_attention(x, x, x, is_causal=True, implementation=implementation)
    return x

def loss(x, implementation):
    return (chain(x, implementation).astype(jnp.float32) ** 2).sum()

grad = jax.jit(jax.value_and_grad(loss), static_argnums=1)
for seed in range(5):
    # A new buffer at each step: a recorded command buffer must take up its address.
    x = jax.random.normal(jax.random.key(seed), (2, 64, 4, 64)).astype(jnp.bfloat16)
    for _ in range(2):
        value, gradient = grad(x, "cudnn")
        wanted, exact = grad(x, "reference")
        np.testing.assert_allclose(value, wanted, rtol=2e-2)
        scale = float(jnp.abs(exact.astype(jnp.float32)).max())
        np.testing.assert_allclose(
            gradient.astype(float), exact.astype(float), atol=3e-2 * scale
        )
print("same")
"""


class TestCommandBuffers:
    @pytest.mark.parametrize("least", ["1", "1000000"])
    def test_chain_of_tiny_attentions(self, least: str) -> None:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_graph_min_graph_size={least}"
        done = subprocess.run(
            [sys.executable, "-c", CHAIN],
            env={**os.environ, "XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.stdout.strip() == "same", done.stderr


class TestPersistentCache:
    def test_second_process_finds_the_program(self, tmp_path: Any) -> None:
        code = """
import sys, jax, jax.numpy as jnp
from sdpa_jax import dot_product_attention
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
x = jnp.ones((2, 128, 4, 64), jnp.bfloat16)
f = jax.jit(lambda x: dot_product_attention(x, x, x, implementation="cudnn"))
print(float(f(x).astype(jnp.float32).mean()))
"""
        values = []
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", code, str(tmp_path)],
                env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            values.append((done.stdout, sorted(p.name for p in tmp_path.glob("*-cache"))))
        assert values[0][1], "nothing was cached"
        assert values[0] == values[1]
