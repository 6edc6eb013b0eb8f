"""What the settings of the other tests would hide: XLA with all optimizations, and two devices."""

from __future__ import annotations

import os
import subprocess
import sys

SETUP = """
import warnings
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from sdpa_core import Band
from sdpa_core.testing import attention, attention_backward
from sdpa_jax import dot_product_attention

rng = np.random.default_rng(0)
query, key, value, incoming = (
    jnp.asarray(rng.standard_normal((2, 6, 4, 8)), jnp.float32) for _ in range(4)
)
bhsd = lambda *arrays: [np.swapaxes(np.asarray(x, np.float64), 1, 2) for x in arrays]
close = lambda x, y, tolerance: np.testing.assert_allclose(
    x, y, rtol=0, atol=tolerance * np.abs(y).max()
)
"""


def run(code: str, devices: int = 1) -> None:
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", SETUP + code + "\nprint('right')"],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.strip() == "right", done.stderr[-3000:]


def test_large_logits() -> None:
    """A multiply-add fused into the exponential would not be the product that was rounded."""
    run("""
for size, scale in ((1, None), (300, None), (1, 1e6), (1, 1e9), (1, -1e20), (1, 1e30)):
    q, k = query * size, key
    f = lambda q, k, v: dot_product_attention(q, k, v, scale=scale, return_residual=True)
    output, pull, lse = jax.vjp(f, q, k, value, has_aux=True)
    exact = attention(*bhsd(q, k, value), scale=scale)
    close(bhsd(output)[0], exact.output, 1e-4)
    close(np.swapaxes(np.asarray(lse, np.float64), 1, 2), exact.lse, 1e-5)
    gradients = attention_backward(*bhsd(q, k, value, incoming), scale=scale)
    close(bhsd(pull(incoming)[2])[0], gradients.grad_value, 1e-3)
""")


def test_data_parallel_gradients_inside_shard_map() -> None:
    """A weight that all devices share gets the sum of what each of them contributes."""
    run(
        """
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
weight = jnp.ones(8)
def gradient(f):
    def body(w, q, k, v):
        return jax.grad(lambda w: (f(q, k, v, is_causal=True) @ w).sum())(w)
    specs = (P(), P("x"), P("x"), P("x"))
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P()))(
        weight, query, key, value
    )
close(gradient(dot_product_attention), gradient(jax.nn.dot_product_attention), 1e-5)
""",
        devices=2,
    )


def test_operands_that_vary_over_some_axes_only_inside_shard_map() -> None:
    run(
        """
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
def loss(f):
    specs = (P(), P(None, "x"), P(None, "x"))
    body = lambda q, k, v: jax.lax.psum((f(q, k, v) ** 2).sum(), "x")
    return jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P())
for mine, other in zip(
    jax.grad(loss(dot_product_attention), (0, 1, 2))(query, key, value),
    jax.grad(loss(jax.nn.dot_product_attention), (0, 1, 2))(query, key, value),
):
    close(mine, other, 1e-5)
""",
        devices=2,
    )


def test_a_part_does_not_pass_for_the_whole_inside_shard_map() -> None:
    run(
        """
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
specs = (P(), P(None, "x"), P(None, "x"))
whole = jax.shard_map(dot_product_attention, mesh=mesh, in_specs=specs, out_specs=P())
try:
    whole(query, key, value)
except Exception as error:
    assert "out_specs" in str(error), error
else:
    raise SystemExit("accepted")
""",
        devices=2,
    )


def test_batch_and_heads_over_devices() -> None:
    run(
        """
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
whole = jax.grad(lambda *x: (dot_product_attention(*x) ** 2).sum(), (0, 1, 2))(query, key, value)
for spec in (P("x"), P(None, None, "x")):
    def part(*x):
        return jax.grad(lambda *x: (dot_product_attention(*x) ** 2).sum(), (0, 1, 2))(*x)
    found = jax.shard_map(part, mesh=mesh, in_specs=(spec,) * 3, out_specs=(spec,) * 3)(
        query, key, value
    )
    for mine, other in zip(found, whole):
        close(mine, other, 1e-6)
""",
        devices=2,
    )


def test_features_over_eight_devices() -> None:
    """Sequences, their lengths and their biases over devices; a sink and slopes for all."""
    run(
        """
mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
query, key, value = (
    jnp.asarray(rng.standard_normal((8, 6, n, 8)), jnp.float32) for n in (4, 2, 2)
)
bias = jnp.asarray(rng.standard_normal((8, 1, 6, 6)), jnp.float32)
row = jnp.asarray(rng.standard_normal((1, 4, 1, 6)), jnp.float32)
sink = jnp.asarray(rng.standard_normal(4), jnp.float32)
lengths = jnp.arange(8) % 7
def grads(q, k, v, b, r, s, n):
    def loss(q, k, v, b, r, s):
        out = dot_product_attention(
            q, k, v, b + r, sink=s, key_value_seq_lengths=n, alibi=True, is_causal=True
        )
        return (out ** 2).sum()
    return jax.grad(loss, (0, 1, 2, 3, 4, 5))(q, k, v, b, r, s)
whole = grads(query, key, value, bias, row, sink, lengths)
specs = (P("x"),) * 4 + (P(), P())
part = jax.shard_map(grads, mesh=mesh, in_specs=(*specs, P("x")), out_specs=specs)
for mine, other in zip(jax.jit(part)(query, key, value, bias, row, sink, lengths), whole):
    close(mine, other, 1e-5)

def shared(b, q, k, v):
    return jax.grad(lambda b: (dot_product_attention(q, k, v, b) ** 2).sum())(b)
part = jax.shard_map(
    shared, mesh=mesh, in_specs=(P(), P("x"), P("x"), P("x")), out_specs=P()
)
close(part(bias[:1], query, key, value), shared(bias[:1], query, key, value), 1e-5)
""",
        devices=8,
    )


def test_packed_sequences_of_each_device() -> None:
    run(
        """
from sdpa_jax import varlen_attention
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
query, key, value = (
    jnp.asarray(rng.standard_normal((16, n, 8)), jnp.float32) for n in (4, 2, 2)
)
bounds = jnp.array([[0, 3, 8], [0, 6, 7]])
def grads(q, k, v, cu):
    f = lambda *x: (varlen_attention(*x, cu[0], cu[0], 8, 8, is_causal=True) ** 2).sum()
    return jax.grad(f, (0, 1, 2))(q, k, v)
found = jax.jit(jax.shard_map(grads, mesh=mesh, in_specs=P("x"), out_specs=P("x")))(
    query, key, value, bounds
)
for i in range(2):
    part = slice(8 * i, 8 * i + 8)
    right = grads(query[part], key[part], value[part], bounds[i : i + 1])
    for mine, other in zip(found, right):
        close(mine[part], other, 1e-5)
""",
        devices=2,
    )
