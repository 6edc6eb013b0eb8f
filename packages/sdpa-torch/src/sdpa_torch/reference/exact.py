"""Types of accumulation, and autocast kept out of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Function = Callable[Concatenate[tuple[Tensor, ...], _P], _R]


def without_autocast(function: _Function[_P, _R]) -> _Function[_P, _R]:
    """Autocast would round the matrix products of a float32 computation to 16 bits again."""

    @wraps(function)
    def exact(tensors: tuple[Tensor, ...], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        kind = tensors[0].device.type
        if kind == "meta" or not torch.is_autocast_enabled(kind):
            return function(tensors, *args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return function(tensors, *args, **kwargs)

    return exact


def accumulation_type(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def finite(peak: Tensor) -> Tensor:
    """-inf (a row without visible keys) as 0, so that no difference of infinities arises."""
    return peak.where(peak > float("-inf"), 0.0)
