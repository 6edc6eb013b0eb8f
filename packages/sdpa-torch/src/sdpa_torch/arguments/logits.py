"""The softmax's denominator, and functions of the logits."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from sdpa_core import TensorSpec
from sdpa_core.logits import ScoreMod
from sdpa_core.problem import Softmax
from sdpa_core.score_mod import (
    TENSOR_TYPES,
    ScalarArg,
    TensorArg,
    Traced,
    trace,
    trace_bprop,
)

from ..convert import dtype_of
from .numbers import float32
from .operands import shape, tensor

_SOFTMAX = {str(kind): kind for kind in Softmax}


def softmax_of(softmax: Any, sink: Any, query: Tensor) -> tuple[Softmax, Tensor | None]:
    """What is in the denominator, and the sink ``[Hq]`` in the type of the log-sum-exp."""
    if not isinstance(softmax, str) or softmax not in _SOFTMAX:
        raise ValueError(f"softmax = {softmax!r}; expected one of {', '.join(_SOFTMAX)}")
    kind = _SOFTMAX[softmax]
    if sink is None:
        if kind is Softmax.LEARNABLE:
            raise ValueError("softmax = 'learnable' needs a sink, one number for each query head")
        return kind, None
    if kind is Softmax.OFF_BY_ONE:
        raise ValueError("sink is given with softmax = 'off_by_one', whose sink is 0; drop one")
    heads = query.shape[1]
    given = tensor("sink", sink, query, "floating point [Hq]", (heads,))
    if not given.is_floating_point():
        raise TypeError(f"sink has dtype {given.dtype}; expected a floating-point type")
    shape("sink", given, (heads,), axes="[Hq]")
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return Softmax.LEARNABLE, given.to(wide)


class Modified(NamedTuple):
    """A traced ``score_mod``, its auxiliary tensors, and the numbers given at launch."""

    score_mod: ScoreMod | None = None
    tensors: tuple[Tensor, ...] = ()
    numbers: tuple[float, ...] = ()


UNMODIFIED = Modified()


def modified(
    score_mod: Any, score_mod_bprop: Any, args: Any, query: Tensor, logits: tuple[int, ...]
) -> Modified:
    """``score_mod`` as a value.

    Args:
        logits: their shape, ``[B, Hq, Sq, Skv]``.

    Raises:
        TypeError, ValueError: not callable, or an argument that cannot be one of it.
    """
    if not isinstance(args, tuple | list):
        raise TypeError(f"score_mod_args is a {type(args).__name__}; expected a tuple")
    if score_mod is None:
        for name, given in (("score_mod_bprop", score_mod_bprop), ("score_mod_args", args)):
            if given is not None and given != ():
                raise ValueError(f"{name} is given without score_mod")
        return UNMODIFIED
    for name, function in (("score_mod", score_mod), ("score_mod_bprop", score_mod_bprop)):
        if not callable(function) and not (function is None and name == "score_mod_bprop"):
            raise TypeError(f"{name} is a {type(function).__name__}; expected a function")
    given = tuple(_argument(number, arg, query, logits) for number, arg in enumerate(args))
    kinds = tuple(_kind(number, arg) for number, arg in enumerate(given))
    traced = trace(score_mod, kinds)
    back = None if score_mod_bprop is None else trace_bprop(score_mod_bprop, kinds)
    return _value(traced, back, given)


def _value(traced: Traced, back: Traced | None, given: tuple[Any, ...]) -> Modified:
    tensors = tuple(given[number] for number in traced.tensors)
    numbers = tuple(given[number] for number in traced.scalars)
    specs = tuple(
        TensorSpec(tuple(t.shape), tuple(t.stride()), dtype_of("score_mod_args", t.dtype))
        for t in tensors
    )
    gradient = None if back is None else back.expression
    return Modified(ScoreMod(traced.expression, gradient, specs, len(numbers)), tensors, numbers)


def _argument(number: int, given: Any, query: Tensor, logits: tuple[int, ...]) -> Tensor | float:
    """A number, or a tensor of rank 4."""
    name = f"score_mod_args[{number}]"
    if not isinstance(given, Tensor):
        return float32(name, given, "a number or a torch.Tensor")
    given = tensor(name, given, query, TENSOR_TYPES)
    if given.dtype not in _AUXILIARY:
        raise TypeError(f"{name} has dtype {given.dtype}; expected {TENSOR_TYPES}")
    if given.requires_grad:
        raise ValueError(f"{name} requires a gradient; it gets none: detach() it")
    rank_4 = (1,) * (len(logits) - given.dim()) + tuple(given.shape)
    if len(rank_4) != len(logits) or any(
        ours not in (1, theirs) for ours, theirs in zip(rank_4, logits, strict=True)
    ):
        raise ValueError(
            f"{name} has shape {list(given.shape)}, which does not broadcast to the logits, "
            f"{list(logits)}"
        )
    return cast(Tensor, given.reshape(rank_4))


_AUXILIARY = (torch.float32, torch.float16, torch.bfloat16, torch.int32)


def _kind(number: int, given: Tensor | float) -> TensorArg | ScalarArg:
    if not isinstance(given, Tensor):
        return ScalarArg()
    return TensorArg(dtype_of(f"score_mod_args[{number}]", given.dtype), tuple(given.shape))
