"""What both frameworks are given: text, batches, the first weights, and the optimizer's arithmetic.

The model is a decoder with pre-normalization, grouped-query attention and learned positions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYERS = 2
WIDTH = 64
HEADS = 4
KV_HEADS = 2
HEAD_DIM = WIDTH // HEADS
CONTEXT = 128
BATCH = 16

LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.01
BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8

#: Weights, gradients or optimizer state by name; the values are arrays of one framework.
Arrays = dict[str, Any]


def read_text(repository: Path) -> str:
    """The repository's own documentation."""
    pages = [repository / "README.md", *sorted(repository.glob("docs/*.md"))]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def encode(text: str) -> tuple[NDArray[np.int64], str]:
    """The text as indices into its alphabet, and the alphabet."""
    alphabet = sorted(set(text))
    index = {character: i for i, character in enumerate(alphabet)}
    return np.array([index[character] for character in text]), "".join(alphabet)


def batches(tokens: NDArray[np.int64], steps: int, seed: int) -> NDArray[np.int64]:
    """Random excerpts, ``[steps, BATCH, CONTEXT + 1]``: inputs and, one later, what to predict."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(len(tokens) - CONTEXT, size=(steps, BATCH, 1))
    return tokens[starts + np.arange(CONTEXT + 1)]


def first_weights(vocabulary: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """Float32 weights; those of the layers have a leading axis ``LAYERS``."""
    rng = np.random.default_rng(seed)

    def matrices(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[-2] ** -0.5)

    return {
        "embedding": matrices(vocabulary, WIDTH),
        "position": matrices(CONTEXT, WIDTH),
        "query": matrices(LAYERS, WIDTH, HEADS * HEAD_DIM),
        "key": matrices(LAYERS, WIDTH, KV_HEADS * HEAD_DIM),
        "value": matrices(LAYERS, WIDTH, KV_HEADS * HEAD_DIM),
        "merge": matrices(LAYERS, HEADS * HEAD_DIM, WIDTH),
        "expand": matrices(LAYERS, WIDTH, 4 * WIDTH),
        "shrink": matrices(LAYERS, 4 * WIDTH, WIDTH),
        "head": matrices(WIDTH, vocabulary),
    }


def zeros(weights: Arrays) -> Arrays:
    """The optimizer's state before the first step."""
    return {name: 0 * weight for name, weight in weights.items()}


def step_size(step: int) -> float:
    """AdamW's learning rate with the bias correction of its moments, for steps from 1."""
    return LEARNING_RATE * (1 - BETA2**step) ** 0.5 / (1 - BETA1**step)


def adamw(
    weights: Arrays, gradients: Arrays, means: Arrays, squares: Arrays, size: Any
) -> tuple[Arrays, Arrays, Arrays]:
    """One step of AdamW (Loshchilov and Hutter, arXiv:1711.05101); ``size`` is ``step_size``.

    Written in operators that NumPy, PyTorch and JAX share, so that all do the same arithmetic.
    """
    means = {n: BETA1 * means[n] + (1 - BETA1) * g for n, g in gradients.items()}
    squares = {n: BETA2 * squares[n] + (1 - BETA2) * g * g for n, g in gradients.items()}
    keep = 1 - LEARNING_RATE * WEIGHT_DECAY
    weights = {
        n: keep * w - size * means[n] / (squares[n] ** 0.5 + EPSILON) for n, w in weights.items()
    }
    return weights, means, squares
