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
from sdpa_core.testing import CASES, LARGE_CASES, Case, covering, in_16_bits
from sdpa_core.testing.conformance import ConformanceSuite, assert_matches, run
from sdpa_jax import SlowAttentionWarning, dot_product_attention, explain
from sdpa_jax.cudnn import TARGET
from sdpa_jax.device import device_spec
from sdpa_jax.testing import JaxSubject

pytestmark = pytest.mark.gpu

EVERY_CASE = in_16_bits(CASES + LARGE_CASES)
PART = covering(in_16_bits(CASES)) + LARGE_CASES

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
    cases = EVERY_CASE if os.environ.get("SDPA_EVERY_CASE") else PART

    @pytest.fixture
    def subject(self, spec: DeviceSpec) -> JaxSubject:
        return JaxSubject("jax cudnn", implementation="cudnn", spec=spec)


class TestReferenceOnCuda(ConformanceSuite):
    cases = covering(tuple(case for case in CASES if case.dtype is DType.FLOAT32))

    @pytest.fixture
    def subject(self) -> JaxSubject:
        return JaxSubject("jax reference on CUDA", implementation="reference")

    def test_inference_equals_training(self, subject: JaxSubject, case: Case) -> None:
        """XLA fuses a program without the log-sum-exp differently: values are equal, bits not."""
        for training, return_lse in ((False, False), (False, True), (True, True)):
            result = run(subject, case, training=training, return_lse=return_lse)
            if result is not None:
                assert_matches(result, case, ("output",))


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
        # XLA may merge the forward pass that plain checkpointing repeats; the policy repeats none.
        assert calls(loss) == 2
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
from sdpa_jax import dot_product_attention

def chain(query, key, value):
    for _ in range(10):
        query = dot_product_attention(
            query, key, value, is_causal=True, implementation="cudnn", deterministic=True
        )
    return query

def loss(query, key, value):
    return (chain(query, key, value).astype(jnp.float32) ** 2).sum()

whole, grad = jax.jit(chain), jax.jit(jax.grad(loss))
key, value = (
    jax.random.normal(jax.random.key(seed), (2, 64, 4, 64)).astype(jnp.bfloat16)
    for seed in (100, 101)
)
for seed in range(5):
    # A new buffer at each step: a recorded command buffer must take up its address.
    query = jax.random.normal(jax.random.key(seed), (2, 64, 4, 64)).astype(jnp.bfloat16)
    one_by_one, gradient = chain(query, key, value), jax.grad(loss)(query, key, value)
    for _ in range(3):
        np.testing.assert_array_equal(
            whole(query, key, value).astype(float), one_by_one.astype(float)
        )
        np.testing.assert_array_equal(
            grad(query, key, value).astype(float), gradient.astype(float)
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
