"""The cuDNN path's own promises, without cuDNN."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from sdpa_core import SdpaEnvironmentError
from sdpa_torch import cudnn, functional
from sdpa_torch import scaled_dot_product_attention as sdpa
from sdpa_torch.testing import fake_cudnn


@pytest.fixture(autouse=True)
def fresh_executor() -> object:
    cudnn._executor.cache_clear()
    yield
    cudnn._executor.cache_clear()


def test_another_executor_abi_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sdpa_ffi", SimpleNamespace(EXECUTOR_ABI=2))
    with pytest.raises(SdpaEnvironmentError, match=r"ABI 1, sdpa-ffi has 2.* pip install -U"):
        cudnn._executor()


def test_importing_loads_neither_the_executor_nor_cudnn_nor_jax() -> None:
    code = "import sys, sdpa_torch; print({'sdpa_ffi', 'cudnn', 'jax', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() in ("set()", "{'numpy'}")  # torch imports numpy if it is there


def test_one_plan_serves_every_scale() -> None:
    query = torch.randn(2, 4, 16, 8, dtype=torch.bfloat16)
    functional._prepare.cache_clear()
    with fake_cudnn() as fake:
        for scale in (None, 0.5, -0.5, 0.0):
            sdpa(query, query, query, scale=scale, backend="cudnn")
    assert len(fake.plans) == 1
    assert len(fake.executed) == 4


def test_a_prepared_call_is_not_prepared_again() -> None:
    query = torch.randn(2, 4, 16, 8, dtype=torch.bfloat16)
    functional._prepare.cache_clear()
    with fake_cudnn():
        for _ in range(3):
            sdpa(query, query, query, backend="cudnn")
            sdpa(query, query, query, is_causal=True, backend="cudnn")
    assert functional._prepare.cache_info().misses == 2


def test_full_lengths_are_made_once_and_kept() -> None:
    """The workaround at Skv % 128 == 64 costs no kernel per call."""
    operands = [torch.randn(2, 4, 64, 8, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    made = []
    full = torch.full

    def counting(*args: object, **kwargs: object) -> torch.Tensor:
        made.append(args)
        return full(*args, **kwargs)

    with fake_cudnn() as fake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "full", counting)
        for _ in range(3):
            sdpa(*operands, backend="cudnn").sum().backward()
    assert len(fake.executed) == 6
    assert len(made) == 2  # query and key lengths
