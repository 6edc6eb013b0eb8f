"""The choice of a backend, which is made for the platform that is lowered for."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from sdpa_core import DeviceSpec, NoBackendError, SdpaEnvironmentError, SlowAttentionWarning
from sdpa_jax import backends, cudnn, dot_product_attention, explain, lowering_device
from sdpa_jax.cudnn import TARGET, runtime
from sdpa_jax.testing import fake_cudnn

X = jnp.ones((2, 128, 4, 64), jnp.bfloat16)
STRUCT = jax.ShapeDtypeStruct(X.shape, X.dtype)


def loss(query: jax.Array) -> jax.Array:
    out = dot_product_attention(query, query, query, is_causal=True)
    return out.astype(jnp.float32).sum()


def lowered(function: Any, *platforms: str) -> str:
    return jax.jit(function).trace(X).lower(lowering_platforms=platforms).as_text()


class TestCuda:
    def test_plans_are_built_for_an_absent_gpu(self) -> None:
        with lowering_device("h200"):
            text = lowered(jax.grad(loss), "cuda")
        calls = [line for line in text.splitlines() if f"@{TARGET}" in line]
        assert len(calls) == 2
        # Of the forward call: the statistics, then the workspace.
        assert "tensor<2x4x128x1xf32>, tensor<" in calls[0]
        for call in calls:
            assert call.rstrip().endswith("xui8>)")
            assert "scalars = dense<1.250000e-01> : tensor<1xf32>" in call
            assert "SDPAPLAN" in call
            assert "has_side_effect" not in call

    def test_inference_has_no_statistics(self) -> None:
        with lowering_device("h200"):
            text = lowered(loss, "cuda")
        assert text.count(f"@{TARGET}") == 1
        assert "2x4x128x1xf32" not in text

    def test_both_platforms_in_one_program(self) -> None:
        with lowering_device("h200"):
            text = lowered(loss, "cpu", "cuda")
        assert "stablehlo.case" in text
        assert TARGET in text

    def test_other_platforms_are_left_alone(self) -> None:
        with lowering_device("h200"):
            assert TARGET not in lowered(loss, "cpu")
            assert TARGET not in lowered(lambda x: loss(x.astype(jnp.float32)), "cpu")

    def test_needs_a_device(self) -> None:
        with pytest.raises(SdpaEnvironmentError, match="lowering_device"):
            lowered(loss, "cuda")

    def test_reference_is_slow_there(self) -> None:
        def in_float32(x: jax.Array) -> jax.Array:
            return loss(x.astype(jnp.float32))

        warns = pytest.warns(SlowAttentionWarning, match=r"query\.dtype = float32")
        with lowering_device("h200"), warns:
            lowered(in_float32, "cuda")

    def test_spec_instead_of_a_name(self) -> None:
        with lowering_device(DeviceSpec.named("a100")):
            assert TARGET in lowered(loss, "cuda")

    @pytest.mark.parametrize("device", ["h900", DeviceSpec.cpu()])
    def test_wrong_device(self, device: Any) -> None:
        with pytest.raises(ValueError, match="device = "), lowering_device(device):
            pass


class TestOtherPlatforms:
    def test_cpu_takes_the_reference_silently(self) -> None:
        assert TARGET not in lowered(loss, "cpu")

    @pytest.mark.parametrize("platform", ["tpu", "rocm"])
    def test_accelerators_take_the_reference_with_a_warning(self, platform: str) -> None:
        with pytest.warns(SlowAttentionWarning, match=platform.upper()):
            assert TARGET not in lowered(loss, platform)


class TestExplicit:
    def test_cudnn_on_a_cpu(self) -> None:
        with pytest.raises(NoBackendError, match="device = CPU, needs an NVIDIA GPU"):
            dot_product_attention(X, X, X, implementation="cudnn")

    def test_cudnn_on_a_cpu_in_a_context(self) -> None:
        dot_product_attention(X, X, X)
        with pytest.raises(NoBackendError, match="device = CPU"), backends("cudnn"):
            dot_product_attention(X, X, X)
        dot_product_attention(X, X, X)

    def test_context_reaches_what_was_jitted_before(self) -> None:
        jitted = jax.jit(loss)
        jitted(X)
        with pytest.raises(NoBackendError), backends("cudnn"):
            jitted(X)

    def test_context_at_tracing_counts(self) -> None:
        with backends("reference"):
            traced = jax.jit(loss).trace(X)
        with backends("cudnn"):
            assert TARGET not in traced.lower().as_text()

    @pytest.mark.parametrize("name", ["xla", "reference"])
    def test_reference_needs_no_gpu_library(self, name: str) -> None:
        def attend(x: jax.Array) -> jax.Array:
            return dot_product_attention(x, x, x, implementation=name)

        with lowering_device("h200"):
            assert TARGET not in lowered(attend, "cuda")

    def test_unknown_name_in_a_context(self) -> None:
        with pytest.raises(ValueError, match="flash"), backends("flash"):
            dot_product_attention(X, X, X)


def test_no_executor_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sdpa_ffi", None)
    with pytest.raises(SdpaEnvironmentError, match=r"pip install sdpa-ffi$"):
        cudnn.register_executor()


def test_a_slow_call_warns_at_its_caller() -> None:
    x = jnp.ones((1, 40, 2, 24), jnp.float32)
    with fake_cudnn(), pytest.warns(SlowAttentionWarning, match=r"query\.dtype") as caught:
        dot_product_attention(x, x, x)
    assert caught[0].filename == __file__


class TestExplain:
    @pytest.mark.parametrize("device", [3, None.__class__, 1.5])
    def test_no_device(self, device: Any) -> None:
        x = jax.ShapeDtypeStruct((1, 8, 2, 8), jnp.float32)
        with pytest.raises(TypeError, match="device is a"):
            explain(x, x, x, device=device)
        with pytest.raises(TypeError, match="device is a"), lowering_device(device):
            pass

    def test_devices(self) -> None:
        x = jax.ShapeDtypeStruct((1, 8, 2, 8), jnp.float32)
        on_cpu = explain(x, x, x, device="cpu")
        assert on_cpu.forward.backend == "reference"
        assert str(explain(x, x, x, device=jax.devices("cpu")[0])) == str(on_cpu)

    def test_wrong_arguments_are_named(self) -> None:
        x = jax.ShapeDtypeStruct((1, 8, 2, 8), jnp.float32)
        with pytest.raises(TypeError, match="has no argument 'windw'"):
            explain(x, x, x, windw=1)
        with pytest.raises(TypeError, match="query is of type str"):
            explain("a", x, x)
        with pytest.raises(TypeError, match="training is 'yes'"):
            explain(x, x, x, training="yes")

    def test_default_device(self) -> None:
        decision = explain(X, X, X)
        assert decision.forward.backend == "reference"
        assert decision.backward is not None
        assert "needs an NVIDIA GPU" in str(decision)

    def test_named_device(self) -> None:
        decision = explain(X, X, X, is_causal=True, device="h200")
        assert decision.forward.backend == "cudnn"
        assert "H200" in str(decision)

    def test_probe(self) -> None:
        decision = explain(X, X, X, device="h200", probe=True)
        assert "supported by probe" in str(decision)

    def test_inference(self) -> None:
        assert explain(X, X, X, training=False).backward is None

    def test_structs_and_tracers(self) -> None:
        assert explain(STRUCT, STRUCT, STRUCT, device="h200").forward.backend == "cudnn"
        jax.jit(lambda x: explain(x, x, x) and x).trace(X)

    def test_same_errors_as_the_call(self) -> None:
        with pytest.raises(ValueError, match="value has 127 tokens"):
            explain(X, X, X[:, 1:])
        with pytest.raises(TypeError, match="query has dtype int8"):
            explain(jax.ShapeDtypeStruct(X.shape, jnp.int8), X, X)
        with pytest.raises(ValueError, match="implementation"):
            explain(X, X, X, implementation="flash")
        with pytest.raises(ValueError, match="h900"):
            explain(X, X, X, device="h900")
        with pytest.raises(TypeError, match="windw"):
            explain(X, X, X, windw=3)

    def test_agrees_with_the_call(self) -> None:
        with fake_cudnn() as fake:
            assert explain(X, X, X).forward.backend == "cudnn"
            assert not fake.executed


class TestRegistration:
    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
        """What XLA is told of a stand-in for sdpa-ffi."""
        executor = ModuleType("sdpa_ffi")
        executor.EXECUTOR_ABI = 1  # type: ignore[attr-defined]
        executor.xla_types = lambda: {"a type": {}}  # type: ignore[attr-defined]
        executor.xla_targets = lambda: {TARGET: {}}  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "sdpa_ffi", executor)
        calls: list[tuple[str, str]] = []
        for function in ("register_ffi_type", "register_ffi_target"):
            monkeypatch.setattr(
                jax.ffi,
                function,
                lambda name, _, *, platform: calls.append((name, platform)),
            )
        for once in (cudnn.register_executor, runtime.executor):
            once.cache_clear()
        yield calls
        for once in (cudnn.register_executor, runtime.executor):
            once.cache_clear()

    def test_types_come_first_and_once(self, told: list[tuple[str, str]]) -> None:
        cudnn.register_executor()
        cudnn.register_executor()
        assert told == [("a type", "CUDA"), (TARGET, "CUDA")]

    def test_other_abi(self, told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sdpa_ffi.EXECUTOR_ABI", 2)
        with pytest.raises(SdpaEnvironmentError, match="pip install -U sdpa-jax sdpa-ffi"):
            cudnn.register_executor()
        assert not told


class TestPlansOfTheStore:
    """The executor is given a plan where one that it refuses can still be built again."""

    @pytest.mark.parametrize("ordinal", [0, None])
    def test_loaded_on_a_device_that_is_there(
        self, ordinal: int | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[object] = []

        def plan_that_loads(*call: Any) -> str:
            call[-1](SimpleNamespace(container=b"a plan"))
            return "loaded"

        executor = SimpleNamespace(load=lambda plan, device: asked.append((plan, device)))
        monkeypatch.setattr(runtime, "executor", lambda: executor)
        monkeypatch.setattr(runtime, "cuda_devices", lambda: ["a device"])
        monkeypatch.setattr(runtime, "plan_that_loads", plan_that_loads)
        monkeypatch.setattr(runtime, "plan_or_refusal", lambda *_: "not loaded")
        spec = replace(DeviceSpec.named("h200"), ordinal=ordinal)
        with pytest.raises(NoBackendError, match="not loaded" if ordinal is None else "loaded"):
            runtime.NativeRuntime().plan(None, spec, None)  # type: ignore[arg-type]
        assert asked == ([] if ordinal is None else [(b"a plan", 0)])
