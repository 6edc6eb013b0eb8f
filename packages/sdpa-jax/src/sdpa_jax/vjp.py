"""Differentiation: what the backward pass keeps, and what has no gradient."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NoReturn

import jax
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from . import calls
from .calls import Call

#: Names for ``jax.checkpoint_policies.save_only_these_names``: what to keep so that the backward
#: pass need not run the forward kernel again.
OUTPUT_NAME = "sdpa_out"
LSE_NAME = "sdpa_lse"

_Residuals = tuple[Array, Array, Array, Array, Array]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(call: Call, query: Array, key: Array, value: Array) -> tuple[Array, ...]:
    return calls.forward(call, query, key, value)


def _forward(
    call: Call, query: Array, key: Array, value: Array
) -> tuple[tuple[Array, ...], _Residuals]:
    output, lse = calls.forward(replace(call, training=True), query, key, value)
    output = checkpoint_name(output, OUTPUT_NAME)
    lse = checkpoint_name(lse, LSE_NAME)
    results = (output, lse) if call.return_lse else (output,)
    return results, (query, key, value, output, lse)


def _backward(
    call: Call, residuals: _Residuals, cotangents: tuple[Array, ...]
) -> tuple[Array, ...]:
    # The log-sum-exp has passed ``not_differentiable``: its cotangent is zero.
    return calls.backward(replace(call, training=True), *residuals, cotangents[0])


_attention.defvjp(_forward, _backward)


@partial(jax.jit, static_argnums=0)
def attention(call: Call, query: Array, key: Array, value: Array) -> tuple[Array, ...]:
    """``calls.forward``, differentiable in query, key and value, and compiled for eager callers."""
    return _attention(call, query, key, value)


@jax.custom_vjp
def not_differentiable(lse: Array) -> Array:
    """The log-sum-exp; a gradient that reaches it is an error instead of being dropped."""
    return lse


def _keep_nothing(lse: Array) -> tuple[Array, None]:
    return lse, None


def _refuse(residuals: None, cotangent: Array) -> NoReturn:
    raise NotImplementedError(
        "the log-sum-exp (return_residual=True) is not differentiable, and a gradient reaches it; "
        "stop it with jax.lax.stop_gradient"
    )


not_differentiable.defvjp(_keep_nothing, _refuse)
