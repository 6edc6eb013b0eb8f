"""A plan on this machine's GPU, loaded, with tensors for every operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..inputs import Inputs, torch_inputs
from ..peers.base import missing, no_cuda_in_torch
from ..rows import Row
from .figures import CannotRunError


def require_gpu(*modules: str) -> None:
    """Raise ``CannotRunError`` unless torch has a GPU and these modules are there."""
    needed = ("torch", "sdpa_torch", "sdpa_ffi", "cudnn", *modules)
    if reason := missing(*needed) or no_cuda_in_torch():
        raise CannotRunError(reason)


@dataclass(frozen=True)
class Launch:
    """Everything that an execution of a plan takes.

    Attributes:
        plan: of the core.
        loaded: what ``sdpa_ffi.load`` gave.
        inputs: of the row.
        tensors: by role.
        operands: those of the device, in ascending uid.
        scalars: those of the host.
        workspace: owned by the launch.
    """

    plan: Any
    loaded: Any
    inputs: Inputs
    tensors: Mapping[str, Any]
    operands: tuple[Any, ...]
    scalars: tuple[float, ...]
    workspace: Any

    def on(self, stream: int) -> Callable[[], None]:
        """An execution with these very tensors."""
        execute = self.loaded.execute
        operands, scalars, workspace = self.operands, self.scalars, self.workspace
        return lambda: execute(operands, scalars, workspace, stream)


def plan_of(row: Row, *, training: bool = False) -> Any:
    """The forward plan of a row for the first GPU.

    Args:
        row: the problem.
        training: whether the statistics are a result.
    """
    import torch

    from sdpa_core import AttentionProblem, Band, Direction, NoBackendError
    from sdpa_core.cudnn.probe import plan_or_refusal
    from sdpa_torch.device import device_spec

    specs = torch_inputs(row, device="meta").specs()
    band = Band.causal() if row.causal else Band()
    problem = AttentionProblem.of(*specs, band=band, training=training)
    plan = plan_or_refusal(problem, device_spec(torch.device("cuda", 0)), Direction.FORWARD)
    if isinstance(plan, str):
        raise NoBackendError(plan)
    return plan


def empty_results(plan: Any) -> dict[str, Any]:
    """Unwritten results by role."""
    import torch

    from sdpa_torch.convert import TORCH_DTYPES

    return {
        operand.role: torch.empty_strided(
            operand.shape, operand.strides, dtype=TORCH_DTYPES[operand.dtype], device="cuda"
        )
        for operand in plan.outputs
    }


def empty_workspace(plan: Any) -> Any:
    import torch

    return torch.empty(max(16, plan.workspace_bytes), dtype=torch.uint8, device="cuda")


def in_order(plan: Any, tensors: Mapping[str, Any]) -> tuple[Any, ...]:
    """Tensors of the device's operands in ascending uid."""
    ordered = sorted((*plan.inputs, *plan.outputs), key=lambda operand: operand.uid)
    return tuple(tensors[operand.role] for operand in ordered)


def launch_of(row: Row, *, training: bool = False) -> Launch:
    """A row's forward pass, loaded and with tensors of its own."""
    import sdpa_ffi

    plan = plan_of(row, training=training)
    inputs = torch_inputs(row)
    tensors = inputs.by_role() | empty_results(plan)
    return Launch(
        plan=plan,
        loaded=sdpa_ffi.load(plan.container, device=0),
        inputs=inputs,
        tensors=tensors,
        operands=in_order(plan, tensors),
        scalars=(row.scale,),
        workspace=empty_workspace(plan),
    )
