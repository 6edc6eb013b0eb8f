"""Both directions of attention, one after the other, over the same memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .functions import Function
from .graph import Launch, Operand, Operation, like, operand
from .machine import Machine

#: A result that an operation is given, with the name that results have here.
_HANDED_IN = {"dBias": "dBias", "dSink_token": "dSink"}


@dataclass(frozen=True)
class Attention:
    """What is computed.

    Attributes:
        query, key, value, grad_output: tensors, or operands that are declared in another way.
        scale: of the logits.
        inputs: further inputs of both operations, by cuDNN's keyword.
        gradients: memory of ``dBias`` and ``dSink_token``.
        options: further options of both operations.
        backward_only: further inputs of the backward operation.
        backward_options: options of the backward operation.
        function: of the scaled logits.
        read: what the function reads.
        dropout: probability, and int64 memory of seed and offset, ``[1, 1, 1, 1]``.
        avoided: how names of forward plans end that are left out.
    """

    query: Tensor | Operand
    key: Tensor | Operand
    value: Tensor | Operand
    grad_output: Tensor | Operand
    scale: float
    inputs: Mapping[str, Tensor | Operand] = field(default_factory=dict)
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    backward_only: Mapping[str, Tensor | Operand] = field(default_factory=dict)
    backward_options: Mapping[str, Any] = field(default_factory=dict)
    function: Function | None = None
    read: tuple[Tensor | Operand, ...] = ()
    dropout: tuple[float, Tensor, Tensor] | None = None
    avoided: str | None = None


class Attended:
    """An attention on a machine; each operation is built when it is first run."""

    def __init__(self, machine: Machine, attention: Attention) -> None:
        self._machine, self._given = machine, attention
        query, value = operand(attention.query), operand(attention.value)
        self._output = like(query, value.memory.shape[-1], query.memory.dtype)
        self._stats = like(query, 1, torch.float32)
        self._gradients = {
            name: like(one, one.memory.shape[-1], one.memory.dtype)
            for name, one in zip(
                ("dQ", "dK", "dV"), (query, operand(attention.key), value), strict=True
            )
        }

    @property
    def output(self) -> Tensor:
        return self._output.memory

    @property
    def stats(self) -> Tensor:
        """Log-sum-exp of each row."""
        return self._stats.memory

    @property
    def results(self) -> dict[str, Tensor]:
        """By name; what was not computed is NaN."""
        own = {"O": self._output, "LSE": self._stats, **self._gradients}
        handed_in = {_HANDED_IN[key]: one for key, one in self._given.gradients.items()}
        return {name: one.memory for name, one in own.items()} | handed_in

    @cached_property
    def forward(self) -> Launch:
        given = self._given
        operation = Operation(
            "sdpa",
            self._inputs({}),
            (self._output, self._stats),
            {},
            {"attn_scale": given.scale, "generate_stats": True, **given.options},
            given.dropout,
            given.avoided,
        )
        functions = given.function and given.function.forward_callbacks
        return self._launch(operation, functions)

    @cached_property
    def backward(self) -> Launch:
        given = self._given
        inputs = self._inputs(given.backward_only) | {
            "o": self._output,
            "dO": operand(given.grad_output),
            "stats": self._stats,
        }
        operation = Operation(
            "sdpa_backward",
            inputs,
            tuple(self._gradients.values()),
            {key: Operand(memory) for key, memory in given.gradients.items()},
            {"attn_scale": given.scale, **given.options, **given.backward_options},
            given.dropout,
        )
        functions = given.function and given.function.backward_callbacks
        return self._launch(operation, functions)

    def run(self) -> dict[str, Tensor]:
        """Both operations; the results, in their memory."""
        self.forward()
        self.backward()
        return self.results

    def _inputs(self, more: Mapping[str, Tensor | Operand]) -> dict[str, Operand]:
        given = self._given
        own = {"q": given.query, "k": given.key, "v": given.value, **given.inputs, **more}
        return {key: operand(one) for key, one in own.items()}

    def _launch(
        self,
        operation: Operation,
        functions: Callable[[dict[int, Any]], Mapping[str, Any]] | None,
    ) -> Launch:
        read = tuple(operand(one) for one in self._given.read)
        return Launch(self._machine, operation, functions, read)
