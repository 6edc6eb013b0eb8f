"""Attention in torch's autograd: one Function for native code, one that transforms can enter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sdpa_core import Band

from . import reference
from .dispatch import Prepared
from .router import is_plain

_LSE_ERROR = (
    "the log-sum-exp of attention is not differentiable; detach() it, or leave it out of the loss"
)

_BATCHED_ERROR = (
    "the backward pass of attention takes plain tensors; for batched gradients (is_grads_batched, "
    "a vectorized jacobian) differentiate with torch.func instead"
)

#: The vmap of ``torch.autograd.grad(is_grads_batched=True)``, older than torch.func's.
_is_batched = torch._C._functorch.is_legacy_batchedtensor


class NativeAttention(torch.autograd.Function):
    """Any forward callable paired with any backward callable; plain tensors only.

    The old style, with ``ctx`` in ``forward``: ``setup_context`` costs 20 us more per call.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, prepared: Prepared, scale: float
    ) -> tuple[Tensor, Tensor | None]:
        output, stats = prepared.forward(query, key, value, scale)
        ctx.save_for_backward(query, key, value, output, stats)
        ctx.prepared, ctx.scale = prepared, scale
        ctx.set_materialize_grads(False)
        return output, stats

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor | None, grad_stats: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        if grad_stats is not None:
            raise RuntimeError(_LSE_ERROR)
        if grad_output is None:
            return None, None, None, None, None
        if _is_batched(grad_output) or not is_plain(grad_output, *ctx.saved_tensors):
            raise NotImplementedError(_BATCHED_ERROR)
        with torch.no_grad():
            grads = ctx.prepared.backward(*ctx.saved_tensors, grad_output, ctx.scale)
        if torch.is_grad_enabled():  # create_graph=True
            grads = _FirstOrderOnly.apply(*grads, *ctx.saved_tensors[:3], grad_output)
        wanted = (g if need else None for g, need in zip(grads, ctx.needs_input_grad, strict=False))
        return (*wanted, None, None)


class _FirstOrderOnly(torch.autograd.Function):
    """Ties gradients to what they depend on, so that a second derivative raises.

    ``once_differentiable`` alone would drop it silently wherever the incoming gradient is a
    constant, as in ``grad(out.sum(), q, create_graph=True)``.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, grad_query: Tensor, grad_key: Tensor, grad_value: Tensor, *origins: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return (
            grad_query.view_as(grad_query),
            grad_key.view_as(grad_key),
            grad_value.view_as(grad_value),
        )

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise RuntimeError("attention has no second derivative")


class TransformableAttention(torch.autograd.Function):
    """The reference for tracing, ``torch.func`` and tensor subclasses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, band: Band, scale: float, return_lse: bool
    ) -> tuple[Tensor, Tensor]:
        return reference.forward(query, key, value, band, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        query, key, value, ctx.band, ctx.scale, ctx.return_lse = inputs
        ctx.save_for_backward(query, key, value, *output)
        if not ctx.return_lse:
            ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor | None, grad_stats: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        # Tracing hands in a gradient for every differentiable output, used or not.
        if ctx.return_lse and grad_stats is not None:
            raise RuntimeError(_LSE_ERROR)
        if grad_output is None:
            return None, None, None, None, None, None
        query, key, value, output, stats = ctx.saved_tensors
        if torch.is_grad_enabled():
            # A second derivative also goes through the statistics: make them from the operands.
            output, stats = reference.forward(query, key, value, ctx.band, ctx.scale)
        grads = reference.backward(
            query, key, value, output, stats, grad_output, ctx.band, ctx.scale
        )
        return (*grads, None, None, None)
