"""Which calls may reach native code: plain tensors, and nobody watching.

Wrapper subclasses and stand-ins (DTensor, FakeTensor) return 0 from ``data_ptr()`` without
complaint, so everything but exact tensors outside of every transform takes the path made of
torch operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from sdpa_core import Unsupported

_PLAIN = (Tensor, Parameter)
_HINT = "call it on plain tensors, outside of transforms and tracing"

_dispatch_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack


def is_plain(*tensors: Tensor) -> bool:
    """Whether raw addresses of these tensors may be used."""
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:
        if type(tensor) not in _PLAIN or tensor.is_neg():
            return False
    return _dispatch_modes() == 0 and _transform() is None and not is_dual()


def is_dual() -> bool:
    """Whether forward-mode derivatives are under way; tangents ride on plain tensors."""
    level: int = forward_ad._current_level
    return level >= 0


def reasons(tensors: Mapping[str, Tensor]) -> tuple[Unsupported, ...]:
    """Why ``is_plain`` is false for these operands, by name; for reports."""
    return tuple(_reasons(tensors))


def _reasons(tensors: Mapping[str, Tensor]) -> Iterator[Unsupported]:
    for name, tensor in tensors.items():
        if type(tensor) not in _PLAIN:
            yield Unsupported(f"type({name})", type(tensor).__name__, "torch.Tensor", _HINT)
        elif not torch.compiler.is_compiling() and tensor.is_neg():
            yield Unsupported(f"{name}.is_neg()", "True", "False", f"{name}.resolve_neg()")
    if torch.compiler.is_compiling():
        yield Unsupported("caller", "traced by torch.compile or torch.export", "eager code", _HINT)
        return
    if _dispatch_modes():
        yield Unsupported("caller", "inside a torch dispatch mode", "no mode", _HINT)
    if is_dual():
        yield Unsupported("caller", "in forward-mode differentiation", "reverse mode", _HINT)
    if _transform() is not None:
        yield Unsupported("caller", "inside a torch.func transform", "no transform", _HINT)
