"""Functions of the logits, written with cuDNN's own operations and types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cudnn

#: The first cuDNN whose plans hold constants.
_CONSTANTS_SINCE = 92200


@dataclass(frozen=True)
class Pointwise:
    """The graph inside a callback, and the tensor whose shape the logits have."""

    graph: Any
    score: Any

    def __call__(
        self, method: str, *, computed: str = "FLOAT", result: str = "FLOAT", **operands: Any
    ) -> Any:
        """An operation, computed in one type and given in another."""
        made = getattr(self.graph, method)(
            **operands, compute_data_type=getattr(cudnn.data_type, computed)
        )
        return made.set_data_type(getattr(cudnn.data_type, result))

    def position(self, axis: int) -> Any:
        """Of each logit along an axis, as ints: 2 is the query's, 3 the key's."""
        int32 = cudnn.data_type.INT32
        made = self.graph.gen_index(input=self.score, axis=axis, compute_data_type=int32)
        return made.set_data_type(int32)

    def number(self, value: float) -> Any:
        kinds, recent = cudnn.scalar_type, cudnn.backend_version() >= _CONSTANTS_SINCE
        kind = kinds.COMPILE_TIME_CONST if recent else kinds.RUNTIME_PARAM
        return self.graph.tensor_scalar(value, kind)

    def where(self, mask: Any, score: Any) -> Any:
        """The score, or -inf."""
        hidden = self.number(float("-inf"))
        return self("binary_select", input0=score, input1=hidden, mask=mask)


@dataclass(frozen=True)
class Function:
    """A function of the scaled logits.

    Attributes:
        forward: of the operations and what it reads, by number; the new logits.
        gradient: of the same and the incoming gradient; the outgoing one.
        in_backward: ``forward`` as the backward operation has it; None: the same.
    """

    forward: Callable[[Pointwise, dict[int, Any]], Any]
    gradient: Callable[[Pointwise, dict[int, Any], Any], Any]
    in_backward: Callable[[Pointwise, dict[int, Any]], Any] | None = None

    def forward_callbacks(self, read: dict[int, Any]) -> Mapping[str, Any]:
        return {"score_mod": lambda graph, score: self.forward(Pointwise(graph, score), read)}

    def backward_callbacks(self, read: dict[int, Any]) -> Mapping[str, Any]:
        """The operation calls the function first; its gradient uses the same logits."""
        scores: list[Any] = []
        function = self.in_backward or self.forward

        def forward(graph: Any, score: Any) -> Any:
            scores.append(score)
            return function(Pointwise(graph, score), read)

        def gradient(graph: Any, grad: Any) -> Any:
            return self.gradient(Pointwise(graph, scores[-1]), read, grad)

        return {"score_mod": forward, "score_mod_bprop": gradient}


def passed_on(at: Pointwise, read: dict[int, Any], grad: Any) -> Any:
    """The gradient of a mask: hidden logits have probability 0 already."""
    return at("identity", input=grad)
