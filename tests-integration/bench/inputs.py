"""Operands of a row: standard normal numbers in bfloat16, different for each operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .rows import Row

#: How torch's operands ``[B, H, S, D]`` lie in memory: row-major, or as ``[B, S, H, D]``. JAX's
#: operands are ``[B, S, H, D]`` arrays.
Layout = Literal["bhsd", "bshd"]

SEED = 20


@dataclass(frozen=True)
class Inputs:
    """The tensors or arrays of a row."""

    row: Row
    query: Any
    key: Any
    value: Any
    grad_output: Any

    @property
    def operands(self) -> tuple[Any, Any, Any]:
        return self.query, self.key, self.value

    def by_role(self) -> dict[str, Any]:
        """By the names that plans give them."""
        named = {"query": self.query, "key": self.key, "value": self.value}
        return named | {"grad_output": self.grad_output}

    def leaves(self) -> tuple[Any, ...]:
        """Torch's operands, to be differentiated; they share the memory."""
        return tuple(x.detach().requires_grad_() for x in self.operands)

    def specs(self) -> tuple[Any, ...]:
        """Torch's operands as the core describes them."""
        from sdpa_core import DType, TensorSpec

        return tuple(
            TensorSpec(tuple(x.shape), tuple(x.stride()), DType.BFLOAT16) for x in self.operands
        )


def _heads(row: Row) -> tuple[int, ...]:
    """Of query, key, value and the output's gradient."""
    return row.heads, row.heads_kv, row.heads_kv, row.heads


def torch_inputs(row: Row, layout: Layout = "bhsd", device: str = "cuda") -> Inputs:
    import torch

    generator = None if device == "meta" else torch.Generator(device).manual_seed(SEED)

    def draw(heads: int) -> torch.Tensor:
        swap = layout == "bshd"
        middle = (row.tokens, heads) if swap else (heads, row.tokens)
        shape = (row.batch, *middle, row.head_dim)
        made = torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=device)
        return made.transpose(1, 2) if swap else made

    return Inputs(row, *(draw(heads) for heads in _heads(row)))


def jax_inputs(row: Row) -> Inputs:
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(SEED), 4)

    def draw(key: Any, heads: int) -> Any:
        shape = (row.batch, row.tokens, heads, row.head_dim)
        return jax.random.normal(key, shape, jnp.bfloat16)

    return Inputs(row, *(draw(key, heads) for key, heads in zip(keys, _heads(row), strict=True)))


def torch_difference(found: Any, wanted: Any) -> float:
    """Norm of the difference over the norm of the second."""
    found, wanted = found.detach().float(), wanted.detach().float()
    return float((found - wanted).norm() / wanted.norm())


def jax_difference(found: Any, wanted: Any) -> float:
    """As ``torch_difference``."""
    import jax.numpy as jnp

    found, wanted = found.astype(jnp.float32).ravel(), wanted.astype(jnp.float32).ravel()
    return float(jnp.linalg.norm(found - wanted) / jnp.linalg.norm(wanted))
