"""The cuDNN path's own promises, without cuDNN."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sdpa_core import (
    AttentionProblem,
    NoBackendError,
    Plan,
    SdpaEnvironmentError,
    SlowAttentionWarning,
)
from sdpa_core.config import settings
from sdpa_torch import attend, paged_attention, varlen_attention
from sdpa_torch import scaled_dot_product_attention as sdpa
from sdpa_torch.cudnn import runtime
from sdpa_torch.testing import FakeRuntime, fake_cudnn


@pytest.fixture(autouse=True)
def fresh_executor() -> object:
    runtime.executor.cache_clear()
    yield
    runtime.executor.cache_clear()


def test_another_executor_abi_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sdpa_ffi", SimpleNamespace(EXECUTOR_ABI=2))
    with pytest.raises(SdpaEnvironmentError, match=r"ABI 1, sdpa-ffi has 2.* pip install -U"):
        runtime.executor()


def test_no_executor_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sdpa_ffi", None)
    with pytest.raises(SdpaEnvironmentError, match=r"pip install sdpa-ffi$"):
        runtime.executor()


def test_importing_loads_neither_the_executor_nor_cudnn_nor_jax() -> None:
    code = "import sys, sdpa_torch; print({'sdpa_ffi', 'cudnn', 'jax', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() in ("set()", "{'numpy'}")  # torch imports numpy if it is there


def test_one_plan_serves_every_scale() -> None:
    query = torch.randn(2, 4, 16, 8, dtype=torch.bfloat16)
    attend._prepare.cache_clear()
    with fake_cudnn() as fake:
        for scale in (None, 0.5, -0.5, 0.0):
            sdpa(query, query, query, scale=scale, backend="cudnn")
    assert len(fake.plans) == 1
    assert len(fake.executed) == 4


def test_a_prepared_call_is_not_prepared_again() -> None:
    query = torch.randn(2, 4, 16, 8, dtype=torch.bfloat16)
    attend._prepare.cache_clear()
    with fake_cudnn():
        for _ in range(3):
            sdpa(query, query, query, backend="cudnn")
            sdpa(query, query, query, is_causal=True, backend="cudnn")
    assert attend._prepare.cache_info().misses == 2


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16)


def test_full_lengths_belong_to_one_launch() -> None:
    """A kept tensor would be shared between streams and outlived by captured graphs."""
    operands = [rand(2, 4, 64, 8).requires_grad_() for _ in range(3)]
    made: list[torch.Tensor] = []
    full = torch.full

    def recording(*args: Any, **kwargs: Any) -> torch.Tensor:
        made.append(full(*args, **kwargs))
        return made[-1]

    with fake_cudnn(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "full", recording)
        for _ in range(2):
            sdpa(*operands, backend="cudnn").sum().backward()
    assert [tensor.flatten().tolist() for tensor in made] == [[64, 64]] * 4
    assert len({id(tensor) for tensor in made}) == 4


@pytest.mark.parametrize("layout", ["bshd", "packed", "expanded"])
def test_saved_tensors_may_come_back_with_other_strides(layout: str) -> None:
    """Hooks that offload to the host return row-major tensors; the plan was made for others."""
    packed = rand(2, 16, 3, 4, 8)
    views = {
        "bshd": [rand(2, 16, 4, 8).transpose(1, 2) for _ in range(3)],
        "packed": [packed[:, :, i].transpose(1, 2) for i in range(3)],
        "expanded": [rand(2, 1, 16, 8).expand(2, 4, 16, 8) for _ in range(3)],
    }[layout]
    incoming = rand(2, 16, 4, 8).transpose(1, 2)
    found = []
    for hook in (lambda tensor: tensor, lambda tensor: tensor.contiguous()):
        operands = [view.detach().requires_grad_() for view in views]
        with fake_cudnn(), torch.autograd.graph.saved_tensors_hooks(hook, lambda tensor: tensor):
            output = sdpa(*operands, backend="cudnn")
            found.append(torch.autograd.grad(output, operands, incoming))
    for ours, theirs in zip(*found, strict=True):
        assert torch.equal(ours, theirs)


def test_a_gradient_layout_that_cudnn_refuses_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    operands = [rand(2, 4, 16, 8).requires_grad_() for _ in range(3)]
    incoming = rand(2, 16, 4, 8).transpose(1, 2)
    with fake_cudnn() as fake:
        output = sdpa(*operands, backend="cudnn")
        plan = FakeRuntime.plan

        def refusing(self: FakeRuntime, problem: AttentionProblem, *rest: Any) -> Plan | str:
            return "no" if problem.grad_output else plan(self, problem, *rest)

        monkeypatch.setattr(FakeRuntime, "plan", refusing)
        torch.autograd.grad(output, operands, incoming)
    assert fake.executed[-1].graph.operand("grad_output").strides == (512, 128, 8, 1)


def test_batched_gradients_are_refused_in_words() -> None:
    query = rand(2, 4, 16, 8).requires_grad_()
    output = sdpa(query, query, query)
    with pytest.raises(NotImplementedError, match=r"batched gradients .* torch\.func"):
        torch.autograd.grad(
            output, query, torch.ones(3, 2, 4, 16, 8).bfloat16(), is_grads_batched=True
        )


def test_no_head_dim_on_a_gpu() -> None:
    value = rand(1, 2, 4, 8)
    with fake_cudnn(), pytest.warns(SlowAttentionWarning, match="positive multiple of 8"):
        output = sdpa(rand(1, 2, 4, 0), rand(1, 2, 4, 0), value)
    torch.testing.assert_close(output, value.float().mean(2, True).bfloat16().expand(1, 2, 4, 8))


def test_settings_that_were_read_again_count(monkeypatch: pytest.MonkeyPatch) -> None:
    query = rand(2, 4, 16, 12)  # a head dim that cuDNN does not take
    with fake_cudnn():
        monkeypatch.setenv("SDPA_FALLBACK", "allow")
        settings.cache_clear()
        sdpa(query, query, query)
        monkeypatch.setenv("SDPA_FALLBACK", "error")
        settings.cache_clear()
        with pytest.raises(NoBackendError, match="a positive multiple of 8"):
            sdpa(query, query, query)
        monkeypatch.undo()
        settings.cache_clear()


def test_nothing_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths, offsets, masks of slack, seeds: all of it can be captured in a CUDA graph."""

    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("the host asked for a value")

    def ints(*numbers: int) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int32)

    dense = [rand(2, 4, 16, 8).requires_grad_() for _ in range(3)]
    packed = [rand(12, 4, 8).requires_grad_() for _ in range(3)]
    sink = torch.zeros(4, requires_grad=True)
    lengths, cu = ints(9, 0), ints(0, 5, 5, 11)
    pool, table = rand(4, 16, 4, 8), ints(0, 1, 2, 3).reshape(2, 2)
    with fake_cudnn("h200", 92800):
        monkeypatch.setattr(FakeRuntime, "load", lambda *_: lambda *_: None)
        for name in (
            "item",
            "cpu",
            "tolist",
            "numpy",
            "nonzero",
            "__bool__",
            "__int__",
            "__index__",
        ):
            monkeypatch.setattr(torch.Tensor, name, forbidden)
        options: dict[str, Any] = {"backend": "cudnn", "return_max_logit": True}
        bound: dict[str, Any] = {"seq_lens_q": lengths, "seq_lens_kv": lengths, "is_causal": True}
        sdpa(*dense, sink=sink, backend="cudnn", **bound)[0].sum().backward()
        sdpa(*dense, rand(16, 16) > 0, 0.1, backend="cudnn").sum().backward()
        varlen_attention(*packed, cu, cu, 6, 6, backend="cudnn").sum().backward()
        with torch.no_grad():
            sdpa(*dense, **bound, **options)
            varlen_attention(*packed, cu, cu, 6, 6, **options)
            paged_attention(dense[0], pool, pool, table, lengths, backend="cudnn")
    attend._prepare.cache_clear()
