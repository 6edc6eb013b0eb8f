"""One attention call under the magnifying glass: who runs it, its plans, its errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from numpy.typing import NDArray

import sdpa_ffi
import sdpa_jax
import sdpa_torch
from sdpa_core import Band, Decision, Direction, DType, NoBackendError, Plan
from sdpa_core.cudnn.probe import plan_or_refusal
from sdpa_core.testing import MARGIN, attention, attention_backward, error_scales, round_to

from .common import BATCH, CONTEXT, HEAD_DIM, HEADS, KV_HEADS

QUERY_SHAPE = (BATCH, CONTEXT, HEADS, HEAD_DIM)
KEY_SHAPE = (BATCH, CONTEXT, KV_HEADS, HEAD_DIM)


def decisions(dtype: str, torch_device: str, gpu: str | None = None) -> dict[str, Decision]:
    """What the model's attention call would do in training, asked in each framework.

    Args:
        gpu: decide for this GPU, which need not be here, such as ``"h200"``.
    """
    torch_operands = (
        torch.empty(shape, dtype=getattr(torch, dtype), device=torch_device).transpose(1, 2)
        for shape in (QUERY_SHAPE, KEY_SHAPE, KEY_SHAPE)
    )
    jax_operands = (
        jax.ShapeDtypeStruct(shape, dtype) for shape in (QUERY_SHAPE, KEY_SHAPE, KEY_SHAPE)
    )
    return {
        "PyTorch": sdpa_torch.explain(
            *torch_operands, is_causal=True, enable_gqa=True, training=True, device=gpu
        ),
        "JAX": sdpa_jax.explain(*jax_operands, is_causal=True, training=True, device=gpu),
    }


@dataclass(frozen=True)
class BuiltPlan:
    """A plan, how long cuDNN took for it, and the operands the native executor found in it."""

    direction: Direction
    plan: Plan
    seconds: float
    operands: int


def build_plans(decision: Decision) -> Iterator[BuiltPlan]:
    """cuDNN's plans of both directions, loaded by the native executor. Neither needs the GPU.

    Raises:
        NoBackendError: cuDNN refuses.
        SdpaEnvironmentError: cuDNN is not installed, or no C compiler is.
    """
    for direction in Direction:
        start = perf_counter()
        plan = plan_or_refusal(decision.problem, decision.device, direction)
        seconds = perf_counter() - start
        if isinstance(plan, str):
            raise NoBackendError(f"{direction} on {decision.device}: {plan}")
        verified = sdpa_ffi.verify(plan.container, decision.device.properties or "")
        if verified.workspace_bytes != plan.workspace_bytes:
            raise RuntimeError(f"{direction}: the executor found another workspace than cuDNN")
        yield BuiltPlan(direction, plan, seconds, len(verified.uids))


@dataclass(frozen=True)
class Errors:
    """Of one tensor: its largest differences, and the worst share of the allowed error.

    The allowed error is element by element what rounding explains, see ``sdpa_core.testing``.
    """

    tensor: str
    in_torch: float
    in_jax: float
    between: float
    share: float


def errors(dtype: str, torch_device: str, seed: int) -> list[Errors]:
    """One attention call in each framework, and its gradients, against the float64 oracle."""
    rng = np.random.default_rng(seed)
    shapes = (QUERY_SHAPE, KEY_SHAPE, KEY_SHAPE, QUERY_SHAPE)
    # Rounded first, so that the oracle sees what the frameworks see.
    inputs = [round_to(rng.standard_normal(shape), DType(dtype)) for shape in shapes]
    by_head = [array.swapaxes(1, 2) for array in inputs]
    causal = Band.causal()
    output = attention(*by_head[:3], band=causal).output
    exact = (output, *attention_backward(*by_head, band=causal)[:3])
    scales = error_scales(*by_head, dtype=DType(dtype), band=causal)
    allowed = (scales.output, scales.grad_query, scales.grad_key, scales.grad_value)
    found = zip(_call_torch(inputs, dtype, torch_device), _call_jax(inputs, dtype), strict=True)

    rows = []
    names = ("O", "dQ", "dK", "dV")
    for name, want, scale, results in zip(names, exact, allowed, found, strict=True):
        in_torch, in_jax = (np.asarray(x, np.float64).swapaxes(1, 2) for x in results)
        differences = [np.abs(x - want) for x in (in_torch, in_jax)]
        share = max((difference / (MARGIN * scale)).max() for difference in differences)
        between = np.abs(in_torch - in_jax)
        rows.append(Errors(name, *(d.max() for d in (*differences, between)), share))
    return rows


def _call_torch(inputs: list[NDArray[Any]], dtype: str, device: str) -> list[NDArray[Any]]:
    query, key, value, grad = (
        torch.tensor(array, dtype=getattr(torch, dtype), device=device).transpose(1, 2)
        for array in inputs
    )
    operands = [operand.requires_grad_() for operand in (query, key, value)]
    output = sdpa_torch.scaled_dot_product_attention(*operands, is_causal=True, enable_gqa=True)
    results = (output, *torch.autograd.grad(output, operands, grad))
    return [result.detach().transpose(1, 2).double().cpu().numpy() for result in results]


def _call_jax(inputs: list[NDArray[Any]], dtype: str) -> list[NDArray[Any]]:
    def call(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        return sdpa_jax.dot_product_attention(query, key, value, is_causal=True)

    *operands, grad = (jnp.asarray(array, dtype) for array in inputs)
    output, pullback = jax.vjp(call, *operands)
    return [np.asarray(result, np.float64) for result in (output, *pullback(grad))]
