"""The model and its training in PyTorch; ``model_jax`` is the same in JAX."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import gelu

import sdpa_torch

from .common import HEAD_DIM, LAYERS, Arrays, adamw, step_size, zeros


def loss(weights: Arrays, tokens: Tensor, attention_dtype: str) -> Tensor:
    """Mean cross entropy, in nats per character; ``tokens`` is ``[batch, context + 1]``."""
    x = weights["embedding"][tokens[:, :-1]] + weights["position"]
    for layer in range(LAYERS):
        x = x + attention(weights, layer, normalize(x), attention_dtype)
        x = x + feed_forward(weights, layer, normalize(x))
    log_p = torch.log_softmax(normalize(x) @ weights["head"], dim=-1)
    return -torch.take_along_dim(log_p, tokens[:, 1:, None], dim=-1).mean()


def attention(weights: Arrays, layer: int, x: Tensor, attention_dtype: str) -> Tensor:
    query, key, value = (
        (x @ weights[name][layer])  # [batch, tokens, heads * head_dim]
        .unflatten(-1, (-1, HEAD_DIM))
        .transpose(1, 2)  # PyTorch's attention wants [batch, heads, tokens, head_dim]
        .to(getattr(torch, attention_dtype))
        for name in ("query", "key", "value")
    )
    mixed = sdpa_torch.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )
    return mixed.transpose(1, 2).to(x.dtype).flatten(-2) @ weights["merge"][layer]


def feed_forward(weights: Arrays, layer: int, x: Tensor) -> Tensor:
    return gelu(x @ weights["expand"][layer], approximate="tanh") @ weights["shrink"][layer]


def normalize(x: Tensor) -> Tensor:
    """Root mean square 1 along the last axis."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def train(
    first: Arrays, batches: NDArray[np.int64], *, attention_dtype: str, device: str
) -> Iterator[float]:
    """The loss before each step."""
    weights = {name: torch.tensor(array, device=device) for name, array in first.items()}
    means, squares = zeros(weights), zeros(weights)
    for step, batch in enumerate(batches, start=1):
        for weight in weights.values():
            weight.requires_grad_()
        value = loss(weights, torch.tensor(batch, device=device), attention_dtype)
        gradients = torch.autograd.grad(value, list(weights.values()))
        with torch.no_grad():
            named = dict(zip(weights, gradients, strict=True))
            weights, means, squares = adamw(weights, named, means, squares, step_size(step))
        yield value.item()
