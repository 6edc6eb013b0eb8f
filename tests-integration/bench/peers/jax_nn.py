"""JAX's own function on cuDNN."""

from __future__ import annotations

from typing import Any

from .base import JaxPeer


class JaxNn(JaxPeer):
    name = "jax.nn cudnn"

    def attend(self, query: Any, key: Any, value: Any, *, causal: bool) -> Any:
        import jax

        return jax.nn.dot_product_attention(
            query, key, value, is_causal=causal, implementation="cudnn"
        )
