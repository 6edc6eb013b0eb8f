"""Ours: the public functions of both adapters."""

from __future__ import annotations

from typing import Any

from .base import JaxPeer, TorchPeer, missing


class OursInTorch(TorchPeer):
    name = "sdpa_torch"

    def unavailable(self) -> str | None:
        return missing("sdpa_torch", "sdpa_ffi", "cudnn") or super().unavailable()

    def attend(self, inputs: Any, query: Any, key: Any, value: Any) -> Any:
        import sdpa_torch

        return sdpa_torch.scaled_dot_product_attention(
            query, key, value, is_causal=inputs.row.causal, enable_gqa=True, backend="cudnn"
        )


class OursInJax(JaxPeer):
    name = "sdpa_jax"

    def unavailable(self) -> str | None:
        return missing("sdpa_jax", "sdpa_ffi", "cudnn") or super().unavailable()

    def attend(self, query: Any, key: Any, value: Any, *, causal: bool) -> Any:
        import sdpa_jax

        return sdpa_jax.dot_product_attention(
            query, key, value, is_causal=causal, implementation="cudnn"
        )
