"""Both adapters give the same things the same names, but for what a framework calls its own."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from sdpa_core.paged import INFERENCE_ONLY

#: What PyTorch calls it: what JAX calls it.
OWN = {"backend": ["implementation"], "dropout_p": ["dropout_rate", "dropout_key"]}


def names(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def in_jax(torch_names: list[str]) -> list[str]:
    return [name for ours in torch_names for name in OWN.get(ours, [ours])]


@pytest.fixture(name="adapters")
def both() -> tuple[Any, Any]:
    return pytest.importorskip("sdpa_torch"), pytest.importorskip("sdpa_jax")


@pytest.mark.parametrize("function", ["varlen_attention", "paged_attention"])
def test_arguments(function: str, adapters: tuple[Any, Any]) -> None:
    ours, theirs = (names(getattr(adapter, function)) for adapter in adapters)
    assert in_jax(ours) == theirs


def test_fields_of_layouts(adapters: tuple[Any, Any]) -> None:
    ours, theirs = (
        [field.name for field in dataclasses.fields(adapter.SequenceLayout)] for adapter in adapters
    )
    assert ours == theirs


def test_why_pages_are_not_trained_with(adapters: tuple[Any, Any]) -> None:
    del adapters
    import jax
    import jax.numpy as jnp
    import torch

    import sdpa_jax
    import sdpa_torch

    shapes = (1, 1, 1, 8), (1, 4, 1, 8), (1, 4, 1, 8)
    integers = [[0]], [3]
    told = []
    with pytest.raises(sdpa_torch.NoBackendError) as refusal:
        sdpa_torch.paged_attention(
            *(torch.ones(shape, requires_grad=True) for shape in shapes),
            *map(torch.tensor, integers),
        )
    told.append(str(refusal.value))
    table, lengths = map(jnp.array, integers)

    def attend(*operands: jax.Array) -> jax.Array:
        return sdpa_jax.paged_attention(*operands, table, lengths).sum()

    with pytest.raises(sdpa_jax.NoBackendError) as refusal:
        jax.grad(attend)(*(jnp.ones(shape) for shape in shapes))
    told.append(str(refusal.value))
    assert told[0].replace("sdpa_torch", "sdpa_jax") == told[1]
    assert str(INFERENCE_ONLY) in told[0]
