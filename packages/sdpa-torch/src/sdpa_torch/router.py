"""Which calls may reach native code: plain tensors, and nobody watching.

Wrapper subclasses and stand-ins (DTensor, FakeTensor) return 0 from ``data_ptr()`` without
complaint, so everything but exact tensors outside of every transform takes the path made of
torch operations.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import Parameter

from sdpa_core import Unsupported

_PLAIN = (Tensor, Parameter)
_HINT = "call it on plain tensors, outside of transforms and tracing"

_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform = torch._C._functorch.peek_interpreter_stack


def is_plain(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether raw addresses of these tensors may be used."""
    return (
        type(query) in _PLAIN
        and type(key) in _PLAIN
        and type(value) in _PLAIN
        and not torch.compiler.is_compiling()
        and _dispatch_modes() == 0
        and _function_modes() == 0
        and _transform() is None
    )


def reasons(query: Tensor, key: Tensor, value: Tensor) -> tuple[Unsupported, ...]:
    """Why ``is_plain`` is false, for reports."""
    return tuple(_reasons(query, key, value))


def _reasons(*tensors: Tensor) -> Iterator[Unsupported]:
    for name, tensor in zip(("query", "key", "value"), tensors, strict=True):
        if type(tensor) not in _PLAIN:
            yield Unsupported(f"type({name})", type(tensor).__name__, "torch.Tensor", _HINT)
    if torch.compiler.is_compiling():
        yield Unsupported("caller", "traced by torch.compile or torch.export", "eager code", _HINT)
        return
    if _dispatch_modes() or _function_modes():
        yield Unsupported("caller", "inside a torch dispatch or function mode", "no mode", _HINT)
    if _transform() is not None:
        yield Unsupported("caller", "inside a torch.func transform", "no transform", _HINT)
