"""``score_mod``'s expressions evaluated with torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sdpa_core.score_mod import Expression, array_ops, evaluate, gradient
from sdpa_core.score_mod import expression as nodes

_AXES = tuple(nodes.Axis)
_TYPES = {nodes.Type.INT: torch.int32, nodes.Type.BOOL: torch.bool}


def _operations(wide: torch.dtype) -> Mapping[str, Callable[..., Any]]:
    return array_ops(torch, lambda x: x.to(wide), lambda x: x.to(torch.int32))


#: Every operation by its name in ``sdpa_core.score_mod.OPS``, by the type of floats.
OPERATIONS = {wide: _operations(wide) for wide in (torch.float32, torch.float64)}


def value(
    expression: Expression,
    score: Tensor,
    positions: tuple[Tensor, Tensor],
    tensors: tuple[Tensor, ...],
    scalars: tuple[float, ...],
    grad: Tensor | None = None,
) -> Tensor:
    """An expression's value for a block of the logits.

    Args:
        score: ``[B, Hq, n, m]``.
        positions: int32 numbers of the block's queries ``[n, 1]`` and keys ``[m]``.
        tensors: the auxiliary tensors' parts for the block.
        scalars: the numbers given at launch.
        grad: gradient by the function's result.
    """
    wide, device = score.dtype, score.device

    def leaf(node: Any) -> Any:
        if isinstance(node, nodes.Score):
            return score
        if isinstance(node, nodes.Grad):
            return grad
        if isinstance(node, nodes.Tensor):
            given = tensors[node.position]
            return given.to(wide) if given.is_floating_point() else given
        if isinstance(node, nodes.Scalar):
            return torch.tensor(scalars[node.position], dtype=wide, device=device)
        if isinstance(node, nodes.Constant):
            return torch.tensor(node.value, dtype=_TYPES.get(node.type, wide), device=device)
        axis = _AXES.index(node.axis)
        if axis >= 2:
            return positions[axis - 2]
        numbers = torch.arange(score.shape[axis], dtype=torch.int32, device=device)
        return numbers.reshape(-1, 1, 1, 1) if axis == 0 else numbers.reshape(-1, 1, 1)

    return evaluate(expression, OPERATIONS[wide], leaf).expand(score.shape)  # type: ignore[no-any-return]


def derivative(expression: Expression) -> Expression:
    """The gradient of an expression, made once; while tracing, which looks through caches, anew."""
    return gradient(expression) if torch.compiler.is_compiling() else _derivative(expression)


_derivative = lru_cache(maxsize=64)(gradient)
