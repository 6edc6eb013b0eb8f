"""Differentiation: what the backward pass keeps, and what has no gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import jax
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero

from sdpa_core import NoBackendError
from sdpa_core.paged import INFERENCE_ONLY

from . import calls
from .call import Call

#: Names for ``jax.checkpoint_policies.save_only_these_names``: what to keep so that the backward
#: pass need not run the forward kernel again.
OUTPUT_NAME = "sdpa_out"
LSE_NAME = "sdpa_lse"


@dataclass(frozen=True)
class _Residuals:
    """What the forward pass keeps: the call as the backward pass has to make it, and arrays.

    Attributes:
        call: static.
        arrays: in the order of ``call.backward_roles``, but for the last.
    """

    call: Call
    arrays: tuple[Array, ...]


jax.tree_util.register_dataclass(_Residuals, data_fields=["arrays"], meta_fields=["call"])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(call: Call, *operands: Array) -> tuple[Array, ...]:
    return calls.forward(call, *operands)


def _forward(call: Call, *operands: Any) -> tuple[tuple[Array, ...], _Residuals]:
    wanted = {role: operand.perturbed for role, operand in zip(call.roles, operands, strict=True)}
    _check_wanted(call, wanted)
    # A gradient costs a kernel time, or the kernel: a frozen bias has none (TransformerEngine
    # issue 3082).
    call = replace(
        call,
        training=True,
        bias_grad=wanted.get("bias", False),
        sink_grad=wanted.get("sink", False),
    )
    arrays = tuple(operand.value for operand in operands)
    results = dict(zip(call.results, calls.forward(call, *arrays), strict=True))
    results["output"] = checkpoint_name(results["output"], OUTPUT_NAME)
    results["stats"] = checkpoint_name(results["stats"], LSE_NAME)
    kept = _Residuals(call, (*arrays, results["output"], results["stats"]))
    asked = replace(call, training=False).results
    return tuple(results[role] for role in asked), kept


def _backward(
    call: Call, residuals: _Residuals, cotangents: tuple[Any, ...]
) -> tuple[Array | None, ...]:
    call = residuals.call
    # The others have passed ``not_differentiable``: their cotangents are zero.
    incoming = cotangents[0]
    if isinstance(incoming, SymbolicZero):
        return (None,) * len(call.roles)
    found = calls.backward(call, *residuals.arrays, incoming)
    gradients = {
        call.operand_of(role): gradient
        for role, gradient in zip(call.gradients, found, strict=True)
    }
    return tuple(gradients.get(role) for role in call.roles)


_attention.defvjp(_forward, _backward, symbolic_zeros=True)


def _check_wanted(call: Call, wanted: Mapping[str, bool]) -> None:
    """Raise where a gradient is asked for that there is not."""
    if call.is_paged:
        raise NoBackendError(
            f"sdpa_jax.paged_attention is for inference: pages have no backward pass\n"
            f"  {INFERENCE_ONLY}"
        )
    for role, is_wanted in wanted.items():
        name = "score_mod_args" if role.startswith("score_mod_") else "alibi"
        if is_wanted and (role == "alibi_slopes" or role.startswith("score_mod_")):
            raise ValueError(
                f"{name} has no gradient, and one is asked for; stop it with jax.lax.stop_gradient"
            )


@partial(jax.jit, static_argnums=0)
def attention(call: Call, *operands: Array) -> tuple[Array, ...]:
    """``calls.forward``, differentiable, and compiled for eager callers.

    Query, key, value, bias and sink have gradients.
    """
    return _attention(call, *operands)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def not_differentiable(name: str, result: Array) -> Array:
    """A result, where a gradient that reaches it is an error instead of being dropped.

    Args:
        name: what it is, for the error's text.
    """
    return result


def _keep_nothing(name: str, result: Array) -> tuple[Array, None]:
    return result, None


def _refuse(name: str, residuals: None, cotangent: Array) -> NoReturn:
    raise NotImplementedError(
        f"{name} is not differentiable, and a gradient reaches it; "
        f"stop it with jax.lax.stop_gradient"
    )


not_differentiable.defvjp(_keep_nothing, _refuse)
