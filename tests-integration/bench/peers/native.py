"""Ours without its adapter: a plan executed on buffers that were allocated before."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from .base import Call, missing, no_cuda_in_torch


class NativeExecutor:
    name = "sdpa_ffi"

    def unavailable(self) -> str | None:
        return missing("torch", "sdpa_torch", "sdpa_ffi", "cudnn") or no_cuda_in_torch()

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext()

    def forward(self, inputs: Any) -> Call:
        run, tensors = _loaded(inputs, "forward", inputs.by_role())
        results = (tensors["output"],)
        return lambda: run() or results

    def backward(self, inputs: Any) -> Call:
        run, tensors = _loaded(inputs, "forward", inputs.by_role(), training=True)
        run()
        run, tensors = _loaded(inputs, "backward", tensors, training=True)
        results = tuple(tensors[f"grad_{name}"] for name in ("query", "key", "value"))
        return lambda: run() or results


def _loaded(
    inputs: Any, direction: str, tensors: dict[str, Any], *, training: bool = False
) -> tuple[Any, dict[str, Any]]:
    """A launch of one direction's plan, and its tensors by role, results included."""
    import torch

    import sdpa_ffi
    from sdpa_core import AttentionProblem, Band, Direction, NoBackendError
    from sdpa_core.cudnn.probe import plan_or_refusal
    from sdpa_torch.device import device_spec

    band = Band.causal() if inputs.row.causal else Band()
    problem = AttentionProblem.of(*inputs.specs(), band=band, training=training)
    device = inputs.query.device
    plan = plan_or_refusal(problem, device_spec(device), Direction(direction))
    if isinstance(plan, str):
        raise NoBackendError(plan)
    tensors = dict(tensors)
    for operand in plan.inputs:
        if operand.constant is not None:
            tensors[operand.role] = torch.full(
                operand.shape, operand.constant, dtype=torch.int32, device=device
            )
    for operand in plan.outputs:
        dtype = torch.float32 if operand.role == "stats" else inputs.query.dtype
        tensors[operand.role] = torch.empty_strided(
            operand.shape, operand.strides, dtype=dtype, device=device
        )
    ordered = sorted((*plan.inputs, *plan.outputs), key=lambda operand: operand.uid)
    operands = tuple(tensors[operand.role] for operand in ordered)
    workspace = torch.empty(max(16, plan.workspace_bytes), dtype=torch.uint8, device=device)
    execute = sdpa_ffi.load(plan.container, device=device.index or 0).execute
    scalars = (inputs.row.scale,)

    def run() -> None:
        execute(operands, scalars, workspace, torch.cuda.current_stream().cuda_stream)

    return run, tensors
