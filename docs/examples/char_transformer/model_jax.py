"""The model and its training in JAX; ``model_torch`` is the same in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.nn import gelu
from numpy.typing import NDArray

import sdpa_jax

from .common import HEAD_DIM, LAYERS, Arrays, adamw, step_size, zeros


def loss(weights: Arrays, tokens: Array, attention_dtype: str) -> Array:
    """Mean cross entropy, in nats per character; ``tokens`` is ``[batch, context + 1]``."""
    x = weights["embedding"][tokens[:, :-1]] + weights["position"]
    for layer in range(LAYERS):
        x = x + attention(weights, layer, normalize(x), attention_dtype)
        x = x + feed_forward(weights, layer, normalize(x))
    log_p = jax.nn.log_softmax(normalize(x) @ weights["head"], axis=-1)
    return -jnp.take_along_axis(log_p, tokens[:, 1:, None], axis=-1).mean()


def attention(weights: Arrays, layer: int, x: Array, attention_dtype: str) -> Array:
    query, key, value = (
        (x @ weights[name][layer])  # [batch, tokens, heads * head_dim]
        .reshape(
            *x.shape[:2], -1, HEAD_DIM
        )  # JAX's attention wants [batch, tokens, heads, head_dim]
        .astype(attention_dtype)
        for name in ("query", "key", "value")
    )
    mixed = sdpa_jax.dot_product_attention(query, key, value, is_causal=True)
    return mixed.astype(x.dtype).reshape(*x.shape[:2], -1) @ weights["merge"][layer]


def feed_forward(weights: Arrays, layer: int, x: Array) -> Array:
    return gelu(x @ weights["expand"][layer], approximate=True) @ weights["shrink"][layer]


def normalize(x: Array) -> Array:
    """Root mean square 1 along the last axis."""
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def train(first: Arrays, batches: NDArray[np.int64], *, attention_dtype: str) -> Iterator[float]:
    """The loss before each step."""

    @jax.jit
    def update(
        weights: Arrays, means: Arrays, squares: Arrays, tokens: Array, size: float
    ) -> tuple[Array, tuple[Arrays, Arrays, Arrays]]:
        value, gradients = jax.value_and_grad(loss)(weights, tokens, attention_dtype)
        return value, adamw(weights, gradients, means, squares, size)

    weights = {name: jnp.asarray(array) for name, array in first.items()}
    means, squares = zeros(weights), zeros(weights)
    for step, batch in enumerate(batches, start=1):
        value, (weights, means, squares) = update(weights, means, squares, batch, step_size(step))
        yield value.item()
