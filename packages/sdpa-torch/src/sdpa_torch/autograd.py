"""Attention in torch's autograd: one Function for native code, one that transforms can enter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import reference
from .dispatch import Prepared
from .features import Features
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
        ctx: Any, prepared: Prepared, scalars: tuple[float, ...], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        results = prepared.forward(tensors, scalars)
        ctx.save_for_backward(*tensors, results[0], results[1])
        ctx.prepared, ctx.scalars = prepared, scalars
        ctx.set_materialize_grads(False)
        if len(results) == 3:
            ctx.mark_non_differentiable(results[2])
        return results

    @staticmethod
    def backward(
        ctx: Any,
        grad_output: Tensor | None,
        grad_stats: Tensor | None,
        grad_max_logit: None = None,
    ) -> tuple[Tensor | None, ...]:
        if grad_stats is not None:
            raise RuntimeError(_LSE_ERROR)
        if grad_output is None:
            return (None,) * len(ctx.needs_input_grad)
        saved = ctx.saved_tensors
        if _is_batched(grad_output) or not is_plain(grad_output, *saved):
            raise NotImplementedError(_BATCHED_ERROR)
        with torch.no_grad():
            grads = ctx.prepared.backward((*saved, grad_output), ctx.scalars)
        if torch.is_grad_enabled():  # create_graph=True
            grads = _FirstOrderOnly.apply(len(grads), *grads, *saved[:-2], grad_output)
        if len(saved) == 5:
            needed = zip(grads, ctx.needs_input_grad[2:], strict=True)
            return None, None, *(grad if need else None for grad, need in needed)
        return None, None, *_by_operand(ctx, grads)


def _by_operand(ctx: Any, grads: tuple[Tensor, ...]) -> list[Tensor | None]:
    """Gradients in the order of the operands, None for those that have none."""
    problem = ctx.prepared.problem
    named = dict(zip(problem.gradients, grads, strict=True))
    needs = ctx.needs_input_grad[2:]
    return [
        named.get(f"grad_{role}") if need else None
        for role, need in zip(problem.inputs, needs, strict=True)
    ]


class _FirstOrderOnly(torch.autograd.Function):
    """Ties gradients to what they depend on, so that a second derivative raises.

    ``once_differentiable`` alone would drop it silently wherever the incoming gradient is a
    constant, as in ``grad(out.sum(), q, create_graph=True)``.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return tuple(grad.view_as(grad) for grad in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise RuntimeError("attention has no second derivative")


class TransformableAttention(torch.autograd.Function):
    """The reference for tracing, ``torch.func`` and tensor subclasses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        features: Features, scalars: tuple[float, ...], return_lse: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        return reference.forward(tensors, scalars, features)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.features, ctx.scalars, ctx.return_lse, *tensors = inputs
        ctx.save_for_backward(*tensors, output[0], output[1])
        ctx.mark_non_differentiable(*(output[2:] if ctx.return_lse else output[1:]))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any,
        grad_output: Tensor | None,
        grad_stats: Tensor | None,
        grad_max_logit: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        # Tracing hands in a gradient for every output, used or not.
        if ctx.return_lse and grad_stats is not None:
            raise RuntimeError(_LSE_ERROR)
        features, scalars = ctx.features, ctx.scalars
        if grad_output is None:
            return (None,) * (3 + len(features.roles))
        *tensors, output, stats = ctx.saved_tensors
        if torch.is_grad_enabled():
            # A second derivative also goes through the statistics: make them from the operands.
            output, stats = reference.forward(tuple(tensors), scalars, features)[:2]
        needs = dict(zip(features.roles, ctx.needs_input_grad[3:], strict=True))
        further = tuple(role for role in ("bias", "sink") if needs.get(role, False))
        grads = reference.backward(
            (*tensors, output, stats, grad_output), scalars, features, further
        )
        named = dict(zip(("query", "key", "value", *further), grads, strict=True))
        return None, None, None, *(named.get(role) for role in features.roles)
