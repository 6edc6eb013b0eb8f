"""Tensors: kind, device, autocast, and the order of their axes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: How the axes of ``layout`` become batch, heads, tokens, head_dim, and the way back.
_TO_BHSD = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (1, 2, 0, 3)}
_FROM_BHSD = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}


def tensors(query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The operands, as autocast wants them, if they are strided tensors on one device."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
        if tensor.is_nested:
            raise TypeError(f"{name} is a nested tensor; expected a dense one")
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name} has layout {tensor.layout}; expected a strided tensor")
        if tensor.device != query.device:
            raise ValueError(
                f"{name} is on {tensor.device}, query is on {query.device}; "
                f"query, key and value must be on one device"
            )
    kind = query.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return query, key, value
    dtype = torch.get_autocast_dtype(kind)
    return _autocast(query, dtype), _autocast(key, dtype), _autocast(value, dtype)


def _autocast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """What autocast makes of an operand of ``F.scaled_dot_product_attention``."""
    eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(dtype) if eligible else tensor


def tensor(name: str, given: Any, beside: Tensor, form: str, *shapes: tuple[int, ...]) -> Tensor:
    """A further operand, if it is a strided tensor on the device of the others.

    Args:
        form: its type and axes in words, for who passes something else.
        shapes: what these axes are in this call. Put into words only for an error: a length in a
            text is a constant to torch.compile.
    """
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{name} is a {type(given).__name__}; expected a torch.Tensor, {form}{_here(shapes)}"
        )
    if given.is_nested or given.layout is not torch.strided:
        raise TypeError(f"{name} is nested or has layout {given.layout}; expected a strided tensor")
    if given.device != beside.device:
        raise ValueError(
            f"{name} is on {given.device}, query is on {beside.device}; "
            f"all operands must be on one device"
        )
    return given


def times(query: Tensor, factor: float) -> Tensor:
    """``factor * query``; integers, which would become floating point, stay to be refused."""
    if factor == 1.0 or not query.is_floating_point():
        return query
    return query * factor


def shape(name: str, given: Tensor, *expected: tuple[int, ...], axes: str) -> Tensor:
    """``given``, if its shape is one of those expected; ``axes`` tells them in words."""
    # Not ``in``: torch.compile finds no tuple of symbolic lengths in another.
    if not any(tuple(given.shape) == one for one in expected):
        raise ValueError(f"{name} has shape {list(given.shape)}; expected {axes}{_here(expected)}")
    return given


def _here(shapes: tuple[tuple[int, ...], ...]) -> str:
    """What axes are in this call."""
    return ", here " + " or ".join(str(list(shape)) for shape in shapes) if shapes else ""


def layout_of(layout: Any) -> str:
    if not isinstance(layout, str) or layout not in _TO_BHSD:
        raise ValueError(f"layout = {layout!r}; expected one of {', '.join(_TO_BHSD)}")
    return layout


def to_bhsd(layout: str, name: str, given: Tensor) -> Tensor:
    """A view in the order that everything else uses."""
    if layout == "bhsd":
        return given
    if given.dim() != 4:
        raise ValueError(f"{name} has shape {list(given.shape)}; layout={layout!r} takes 4 axes")
    return given.permute(_TO_BHSD[layout])


def from_bhsd(layout: str, given: Tensor) -> Tensor:
    return given if layout == "bhsd" else given.permute(_FROM_BHSD[layout])
