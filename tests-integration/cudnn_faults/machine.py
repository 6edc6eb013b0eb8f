"""Where graphs are built and run: this machine's GPU, or one that is not there."""

from __future__ import annotations

from typing import Any, Protocol

import cudnn
import torch

from sdpa_core import DeviceSpec
from sdpa_core.cudnn import deviceless


class Machine(Protocol):
    """A device.

    Attributes:
        device: where tensors are.
        target: what ``cudnn.pygraph`` is told of it.
        runs: whether anything can run.
        compiles: whether kernels are compiled; if not, cuDNN's check of the graph is all.
    """

    device: torch.device
    target: dict[str, Any]
    runs: bool
    compiles: bool

    @property
    def name(self) -> str: ...

    def execute(
        self, graph: Any, plan: int, pointers: dict[int, int], workspace: torch.Tensor
    ) -> None: ...


class Gpu:
    """The current CUDA device."""

    runs = compiles = True

    def __init__(self) -> None:
        self.device = torch.device("cuda")
        self._handle = cudnn.create_handle()
        stream = torch.cuda.current_stream().cuda_stream
        cudnn.set_stream(handle=self._handle, stream=stream)
        self.target = {"handle": self._handle}

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.device)

    def execute(
        self, graph: Any, plan: int, pointers: dict[int, int], workspace: torch.Tensor
    ) -> None:
        graph.execute_plan_at_index(pointers, workspace.data_ptr(), index=plan, handle=self._handle)


class Absent:
    """A GPU by its description: graphs are built, and launches leave memory as it is."""

    runs = False

    def __init__(self, name: str = "h200", *, compiles: bool = True) -> None:
        self.compiles = compiles
        spec = DeviceSpec.named(name)
        deviceless.prepare()
        self.device = torch.device("cpu")
        self.target = {
            "sm_version": spec.sm,
            "device_property": cudnn.create_device_properties(spec.properties),
        }
        self.name = f"{spec.name} (absent)"

    def execute(
        self, graph: Any, plan: int, pointers: dict[int, int], workspace: torch.Tensor
    ) -> None:
        """Nothing can run."""
