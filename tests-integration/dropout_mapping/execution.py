"""The memory of a call, and the GPU that executes graphs on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cudnn
import torch
from torch import Tensor

from .graphs import UID, Call
from .layouts import layouts
from .setups import Setup


class Memory:
    """The tensors of one setup: queries and keys 0, so that every visible key weighs the same."""

    def __init__(self, setup: Setup, device: torch.device) -> None:
        self.setup, self.device = setup, device
        self.tensors: dict[str, Tensor] = {}
        for role, lay in layouts(setup).items():
            dim = lay.dim
            if lay.ragged:
                batch, heads, tokens, d = lay.dim
                dim = (batch * tokens, heads, d)
            self.tensors[role] = torch.zeros(dim, dtype=lay.dtype, device=device)
        self["seed"].fill_(setup.seed)
        self["offset"].fill_(setup.offset)
        for side, name in ((0, "q"), (1, "kv")):
            starts = torch.tensor(setup.starts(side), dtype=torch.int32)
            self[f"seq_len_{name}"].copy_(starts.diff().reshape(-1, 1, 1, 1))
            for role in "qo" if side == 0 else "kv":
                heads = setup.heads if side == 0 else setup.heads_kv
                self[f"ragged_{role}"].copy_((starts * heads * setup.d).reshape(-1, 1, 1, 1))

    def __getitem__(self, role: str) -> Tensor:
        return self.tensors[role]

    def sequence(self, role: str, b: int) -> Tensor:
        """``[heads, tokens, D]`` of a sequence that is there; a view."""
        side = 0 if role in ("q", "o", "dO", "dQ") else 1
        tokens = self.setup.real[b][side]
        if not self.setup.packed:
            return self[role][b, :, :tokens]
        start = self.setup.starts(side)[b]
        return self[role][start : start + tokens].transpose(0, 1)

    def one_hot(self, role: str, first: int, heads: slice) -> None:
        """Token ``first + d`` of every sequence gets a 1 in column ``d``, all else 0."""
        self[role].zero_()
        for b in range(len(self.setup.real)):
            rows = self.sequence(role, b)[heads, first : first + self.setup.d]
            rows.diagonal(dim1=1, dim2=2).fill_(1)


class Runner:
    """Executes calls on this machine's GPU."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")
        self.handle = cudnn.create_handle()
        stream = torch.cuda.current_stream().cuda_stream
        cudnn.set_stream(handle=self.handle, stream=stream)
        self.target = {"handle": self.handle}
        self.calls: dict[tuple[Any, ...], Call] = {}

    def call(self, setup: Setup, direction: str, dump: bool) -> Call:
        """A graph; seed and offset are operands of it, so that it serves them all."""
        key = (replace(setup, seed=0, offset=0), direction, dump)
        if key not in self.calls:
            self.calls[key] = Call(self.target, setup, direction, dump)
        return self.calls[key]

    def execute(self, call: Call, memory: Memory, plan: int) -> None:
        size = call.graph.get_workspace_size_plan_at_index(plan)
        workspace = torch.empty(max(size, 1), dtype=torch.uint8, device=self.device)
        pack = {UID[role]: memory[role] for role in call.made}
        call.graph.execute_plan_at_index(pack, workspace, index=plan, handle=self.handle)
        torch.cuda.synchronize()
