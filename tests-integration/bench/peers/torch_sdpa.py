"""PyTorch's own function, with one of its kernels at a time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from .base import TorchPeer


class TorchSdpa(TorchPeer):
    """``torch.nn.functional.scaled_dot_product_attention``.

    Args:
        backend: a name of ``torch.nn.attention.SDPBackend``.
    """

    def __init__(self, backend: str) -> None:
        self.name = f"torch {backend.removesuffix('_ATTENTION')}"
        self._backend = backend

    def scope(self) -> AbstractContextManager[object]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        return sdpa_kernel(getattr(SDPBackend, self._backend))

    def attend(self, inputs: Any, query: Any, key: Any, value: Any) -> Any:
        from torch.nn.functional import scaled_dot_product_attention

        row = inputs.row
        return scaled_dot_product_attention(
            query, key, value, is_causal=row.causal, enable_gqa=row.heads != row.heads_kv
        )
