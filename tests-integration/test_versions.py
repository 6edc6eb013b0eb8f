"""A few end-to-end checks that one set of versions works together: `nox -s matrix` runs these.

At least one of torch and jax is installed; the other's cases are left out.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

pytestmark = pytest.mark.versions

SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "tokens": 48, "dim": 32}
INSTALLED = [name for name in ("torch", "jax") if find_spec(f"sdpa_{name}") and find_spec(name)]


def test_an_adapter_is_installed():
    assert INSTALLED


@pytest.fixture(scope="module")
def operands():
    """Query, key, value and the output's gradient, [B, S, H, D]."""
    rng = np.random.default_rng(0)
    b, s, d = SHAPE["batch"], SHAPE["tokens"], SHAPE["dim"]
    heads = (SHAPE["heads"], SHAPE["kv_heads"], SHAPE["kv_heads"], SHAPE["heads"])
    return [rng.standard_normal((b, s, h, d), dtype=np.float32) for h in heads]


def expected(query, key, value, grad):
    """Causal attention and its gradients in float64, written without the package under test."""
    group = SHAPE["heads"] // SHAPE["kv_heads"]
    q, k, v, do = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (query, key, value, grad))
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = SHAPE["dim"] ** -0.5
    logits = np.where(np.tri(SHAPE["tokens"], dtype=bool), scale * q @ k.swapaxes(2, 3), -np.inf)
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = p @ v
    dp = do @ v.swapaxes(2, 3)
    ds = p * (dp - (do * out).sum(-1, keepdims=True)) * scale

    def fold(x):
        b, _, s, d = x.shape
        return x.reshape(b, SHAPE["kv_heads"], group, s, d).sum(2)

    results = (out, ds @ k, fold(ds.swapaxes(2, 3) @ q), fold(p.swapaxes(2, 3) @ do))
    return [x.transpose(0, 2, 1, 3) for x in results]


def with_torch(query, key, value, grad):
    import torch

    import sdpa_torch

    q, k, v = (torch.tensor(x).transpose(1, 2).requires_grad_() for x in (query, key, value))
    out = sdpa_torch.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out.backward(torch.tensor(grad).transpose(1, 2))
    return [x.detach().transpose(1, 2).numpy() for x in (out, q.grad, k.grad, v.grad)]


def with_jax(query, key, value, grad):
    import jax

    import sdpa_jax

    def attention(q, k, v):
        return sdpa_jax.dot_product_attention(q, k, v, is_causal=True)

    out, pullback = jax.vjp(jax.jit(attention), query, key, value)
    return [np.asarray(x) for x in (out, *pullback(grad))]


@pytest.mark.parametrize("framework", INSTALLED)
def test_forward_and_backward(framework, operands):
    run = {"torch": with_torch, "jax": with_jax}[framework]
    for found, wanted in zip(run(*operands), expected(*operands), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("framework", INSTALLED)
def test_explain(framework, operands):
    query, key, value, _ = operands
    if framework == "torch":
        import torch

        import sdpa_torch

        q, k, v = (torch.tensor(x).transpose(1, 2).bfloat16() for x in (query, key, value))
        report = sdpa_torch.explain(q, k, v, is_causal=True, enable_gqa=True, device="h200")
    else:
        import jax.numpy as jnp

        import sdpa_jax

        q, k, v = (jnp.asarray(x, jnp.bfloat16) for x in (query, key, value))
        report = sdpa_jax.explain(q, k, v, is_causal=True, device="h200")
    assert "cudnn" in str(report)
