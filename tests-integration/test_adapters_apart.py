"""Neither adapter loads the other's framework, not even when it computes."""

from __future__ import annotations

import subprocess
import sys

import pytest

TORCH = """
import sys, torch, sdpa_torch
from sdpa_torch.testing import fake_cudnn
q, k, v = (torch.randn(1, 2, 16, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
sdpa_torch.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
with fake_cudnn():
    sdpa_torch.scaled_dot_product_attention(q, k, v, backend="cudnn").sum().backward()
str(sdpa_torch.explain(q, k, v, device="h200"))
"""
JAX = """
import sys, jax, jax.numpy as jnp, sdpa_jax
from sdpa_jax.testing import fake_cudnn
q = jnp.ones((1, 16, 2, 8), jnp.bfloat16)
attend = lambda q: sdpa_jax.dot_product_attention(q, q, q, is_causal=True).sum()
jax.block_until_ready(jax.grad(attend)(q))
with fake_cudnn():
    jax.block_until_ready(jax.grad(attend)(q))
str(sdpa_jax.explain(q, q, q, device="h200"))
"""
LEAK = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
"""


def loaded(program: str, module: str) -> bool:
    """Whether a process that runs this program ends up with the module."""
    code = f"{program}\nprint('loaded' if {module!r} in sys.modules else 'absent')"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()[-1] == "loaded"


def test_torch_alone():
    pytest.importorskip("torch")
    assert not loaded(TORCH, "jax")


def test_jax_alone():
    pytest.importorskip("jax")
    assert not loaded(JAX, "torch")


def test_the_check_can_fail():
    assert loaded(LEAK, "torch")
