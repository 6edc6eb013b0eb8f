"""The frontend's graphs of a call, one for each direction, and their plans."""

from __future__ import annotations

from typing import Any

import cudnn
import torch

from .layouts import layouts
from .setups import Setup

FIRST_PYTHON_ENGINE = 10_000

ROLES = (
    *("q", "k", "v", "o", "stats", "dO", "dQ", "dK", "dV", "bias", "seed", "offset", "dump"),
    *("seq_len_q", "seq_len_kv", "ragged_q", "ragged_k", "ragged_v", "ragged_o"),
)
UID = {role: 100 + index for index, role in enumerate(ROLES)}


def data_type(dtype: torch.dtype) -> Any:
    names = {
        torch.float16: "HALF",
        torch.bfloat16: "BFLOAT16",
        torch.float32: "FLOAT",
        torch.int32: "INT32",
        torch.int64: "INT64",
    }
    return getattr(cudnn.data_type, names[dtype])


class Call:
    """A graph of one direction, with its tensors."""

    def __init__(self, target: dict[str, Any], setup: Setup, direction: str, dump: bool) -> None:
        self.setup, self.direction, self.dump = setup, direction, dump
        self.layouts = layouts(setup)
        self.graph = cudnn.pygraph(
            io_data_type=data_type(setup.dtype),
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            **target,
        )
        self.made: dict[str, Any] = {}
        self.built: set[int] = set()
        forward = direction == "forward"
        operands = ("q", "k", "v") if forward else ("q", "k", "v", "o", "dO", "stats")
        options = self._options()
        options |= {role: self._tensor(role) for role in operands}
        if forward:
            results = self.graph.sdpa(generate_stats=setup.stats, **options)
            self._outputs(results, ("o", "stats") if setup.stats else ("o",))
        else:
            results = self.graph.sdpa_backward(
                use_deterministic_algorithm=setup.deterministic, **options
            )
            self._outputs(results, ("dQ", "dK", "dV"))
        self.graph.deselect_engines(["sdpa_fwd_", "sdpa_bwd_"])
        self.graph.validate()
        self.graph.build_operation_graph()
        self.graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        self.graph.check_support()

    def plans(self) -> list[int]:
        """Indices of cuDNN's own plans."""
        count = self.graph.get_execution_plan_count()
        return [i for i in range(count) if self.graph.plans[i].engine_id < FIRST_PYTHON_ENGINE]

    def build(self, index: int | None = None) -> int:
        """Compile one plan, by default the first that compiles; its index."""
        refusal: Exception = RuntimeError("no plan")
        for candidate in self.plans() if index is None else [index]:
            if candidate in self.built:
                return candidate
            try:
                self.graph.build_plan_at_index(candidate)
            except cudnn.cudnnGraphNotSupportedError as error:
                refusal = error
                continue
            self.built.add(candidate)
            return candidate
        raise refusal

    def _options(self) -> dict[str, Any]:
        s = self.setup
        options: dict[str, Any] = {
            "attn_scale": 1.0,
            "dropout": (s.p, self._tensor("seed"), self._tensor("offset")),
        }
        if s.bias:
            options["bias"] = self._tensor("bias")
        if s.left is not None or s.right is not None:
            options["diagonal_alignment"] = cudnn.diagonal_alignment.TOP_LEFT
        if s.left is not None:
            options["diagonal_band_left_bound"] = s.left
        if s.right is not None:
            options["diagonal_band_right_bound"] = s.right
        if s.lengths is not None:
            options["use_padding_mask"] = True
            options |= {role: self._tensor(role) for role in ("seq_len_q", "seq_len_kv")}
        if self.dump:
            options["rng_dump"] = self._tensor("dump").set_output(True)
        return options

    def _tensor(self, role: str) -> Any:
        if role not in self.made:
            lay = self.layouts[role]
            self.made[role] = self.graph.tensor(
                name=role,
                uid=UID[role],
                dim=list(lay.dim),
                stride=list(lay.stride),
                data_type=data_type(lay.dtype),
                ragged_offset=self._tensor(lay.ragged) if lay.ragged else None,
            )
        return self.made[role]

    def _outputs(self, results: Any, roles: tuple[str, ...]) -> None:
        for role, result in zip(roles, results, strict=False):
            lay = self.layouts[role]
            result.set_uid(UID[role]).set_output(True)
            result.set_dim(list(lay.dim)).set_stride(list(lay.stride))
            result.set_data_type(data_type(lay.dtype))
            if lay.ragged:
                result.set_ragged_offset(self._tensor(lay.ragged))
            self.made[role] = result
