"""One operation of cuDNN's frontend over memory of torch."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cudnn
import torch
from torch import Tensor

from .machine import Machine

#: Engines from here on are the frontend's own kernels, which the library does not use.
_FIRST_PYTHON_ENGINE = 10_000

_DATA_TYPES = {
    torch.bfloat16: "BFLOAT16",
    torch.float16: "HALF",
    torch.float32: "FLOAT",
    torch.int32: "INT32",
    torch.int64: "INT64",
}


class RefusedError(Exception):
    """cuDNN does not support the graph; the text is its own."""


@dataclass(frozen=True)
class Operand:
    """Memory, and how the graph declares it.

    Attributes:
        memory: where it lies.
        dim, stride: as declared; None: those of the memory.
        starts: where each sequence starts, in elements, with the end of the last one; None: dense.
    """

    memory: Tensor
    dim: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    starts: Operand | None = None


def packed(memory: Tensor, cu_seqlens: Tensor, tokens: int) -> Operand:
    """``[T, H, D]`` of any strides as sequences of at most ``tokens`` tokens.

    Args:
        memory: the tokens of all sequences.
        cu_seqlens: int32 ``[B + 1]``, in tokens.
        tokens: declared for each sequence.
    """
    _, heads, head_dim = memory.shape
    per_token, per_head, per_element = memory.stride()
    starts = (cu_seqlens.long() * per_token).reshape(-1, 1, 1, 1)
    return Operand(
        memory,
        (len(cu_seqlens) - 1, heads, tokens, head_dim),
        (tokens * per_token, per_head, per_token, per_element),
        Operand(starts),
    )


def like(operand: Operand, last: int, dtype: torch.dtype) -> Operand:
    """Dense memory of NaN for a result with the tokens of ``operand``.

    Behind it lies as much as the operand's memory is longer: what takes the operand's strides for
    the result's own must not write into other tensors.
    """
    memory = operand.memory
    shape = (*memory.shape[:-1], last)
    elements = max(math.prod(shape), memory.untyped_storage().nbytes() // memory.element_size())
    buffer = torch.full((elements,), torch.nan, dtype=dtype, device=memory.device)
    made = buffer[: math.prod(shape)].view(shape)
    if operand.starts is None:
        return Operand(made)
    assert operand.dim is not None
    per_token = operand.memory.stride(0)
    return packed(made, operand.starts.memory.flatten() // per_token, operand.dim[2])


def operand(given: Operand | Tensor) -> Operand:
    return given if isinstance(given, Operand) else Operand(given)


@dataclass(frozen=True)
class Operation:
    """A graph of one operation.

    Attributes:
        name: the frontend's method, ``sdpa`` or ``sdpa_backward``.
        inputs: by keyword.
        results: what it returns, in order.
        handed_in: results that are handed in, by keyword.
        options: other keywords.
        dropout: probability, and memory of seed and offset; None: no dropout.
        avoided: leave out plans whose names end so.
    """

    name: str
    inputs: Mapping[str, Operand]
    results: Sequence[Operand]
    handed_in: Mapping[str, Operand]
    options: Mapping[str, Any]
    dropout: tuple[float, Tensor, Tensor] | None = None
    avoided: str | None = None


class Launch:
    """A compiled plan with its memory; a call runs it.

    Raises:
        RefusedError: cuDNN does not support the operation.
    """

    def __init__(
        self,
        machine: Machine,
        operation: Operation,
        functions: Callable[[dict[int, Any]], Mapping[str, Any]] | None = None,
        function_inputs: Sequence[Operand] = (),
    ) -> None:
        self._machine, self._operation = machine, operation
        self._uids = itertools.count(1)
        self._pointers: dict[int, int] = {}
        self._kept: list[Tensor] = []  # memory that nobody else holds
        self._starts: dict[int, Any] = {}
        dtype = operation.inputs["q"].memory.dtype
        with _refusals():
            self._graph = cudnn.pygraph(
                io_data_type=_data_type(dtype),
                intermediate_data_type=cudnn.data_type.FLOAT,
                compute_data_type=cudnn.data_type.FLOAT,
                **machine.target,
            )
            self._declare(functions, function_inputs)
            self._graph.deselect_engines(["sdpa_fwd_", "sdpa_bwd_"])
            self._graph.validate()
            self._graph.build_operation_graph()
            self._graph.create_execution_plans([cudnn.heur_mode.A])
            self._graph.check_support()
            self.plan = self._build_first() if machine.compiles else 0
        self.engine = str(self._graph.get_plan_name_at_index(self.plan))
        workspace_bytes = self._workspace_bytes(self.plan) if machine.compiles else 0
        self._workspace = torch.empty(
            max(workspace_bytes, 1), dtype=torch.uint8, device=machine.device
        )

    def __call__(self) -> None:
        for result in (*self._operation.results, *self._operation.handed_in.values()):
            result.memory.fill_(torch.nan)
        self._machine.execute(self._graph, self.plan, self._pointers, self._workspace)

    def _declare(
        self,
        functions: Callable[[dict[int, Any]], Mapping[str, Any]] | None,
        function_inputs: Sequence[Operand],
    ) -> None:
        operation = self._operation
        arguments: dict[str, Any] = {
            key: self._tensor(key, one) for key, one in operation.inputs.items()
        }
        for key, one in operation.handed_in.items():
            arguments[key] = self._tensor(key, one).set_output(True)
        if operation.dropout is not None:
            probability, *state = operation.dropout
            names = ("seed", "offset")
            tensors = (self._tensor(n, Operand(one)) for n, one in zip(names, state, strict=True))
            arguments["dropout"] = (probability, *tensors)
        if functions is not None:
            read = {i: self._tensor(f"read {i}", one) for i, one in enumerate(function_inputs)}
            arguments |= functions(read)
        made = getattr(self._graph, operation.name)(**arguments, **operation.options)
        for tensor, one in zip(made, operation.results, strict=False):
            self._mark(tensor, one)

    def _tensor(self, name: str, one: Operand) -> Any:
        return self._graph.tensor(
            name=name,
            uid=self._bound(one),
            dim=list(one.dim or one.memory.shape),
            stride=list(one.stride or one.memory.stride()),
            data_type=_data_type(one.memory.dtype),
            ragged_offset=self._starts_of(one),
        )

    def _mark(self, tensor: Any, one: Operand) -> None:
        tensor.set_output(True)
        tensor.set_uid(self._bound(one))
        tensor.set_dim(list(one.dim or one.memory.shape))
        tensor.set_stride(list(one.stride or one.memory.stride()))
        tensor.set_data_type(_data_type(one.memory.dtype))
        if one.starts is not None:
            tensor.set_ragged_offset(self._starts_of(one))

    def _starts_of(self, one: Operand) -> Any:
        if one.starts is None:
            return None
        address = one.starts.memory.data_ptr()
        if address not in self._starts:
            self._starts[address] = self._tensor(f"starts {len(self._starts)}", one.starts)
        return self._starts[address]

    def _bound(self, one: Operand) -> int:
        uid = next(self._uids)
        self._pointers[uid] = one.memory.data_ptr()
        self._kept.append(one.memory)
        return uid

    def _build_first(self) -> int:
        refusal = "cuDNN offers no plan"
        avoided = self._operation.avoided
        for index in range(self._graph.get_execution_plan_count()):
            if self._graph.plans[index].engine_id >= _FIRST_PYTHON_ENGINE:
                continue
            try:
                self._graph.build_plan_at_index(index)
            except cudnn.cudnnGraphNotSupportedError as error:
                refusal = _one_line(error)
                continue
            if avoided is None or not self._graph.get_plan_name_at_index(index).endswith(avoided):
                return index
            refusal = f"the names of all plans end with {avoided}"
        raise RefusedError(refusal)

    def _workspace_bytes(self, index: int) -> int:
        return int(self._graph.get_workspace_size_plan_at_index(index))


def _data_type(dtype: torch.dtype) -> Any:
    return getattr(cudnn.data_type, _DATA_TYPES[dtype])


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """What cuDNN and its frontend say of a graph; other errors say nothing of it."""
    try:
        yield
    except (cudnn.cudnnGraphNotSupportedError, ValueError) as error:
        raise RefusedError(_one_line(error)) from error
    except RuntimeError as error:
        if "NOT_SUPPORTED" not in str(error):
            raise
        raise RefusedError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    """The message without the settings of engines, which fill pages."""
    text = " ".join(str(error).split())
    return re.split(r" _{3,}| \{", text, maxsplit=1)[0][:300]
