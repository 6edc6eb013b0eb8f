"""Faults of the gradient of a bias."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import oracle
from ..attention import Attended, Attention
from ..fault import Shown, against, fault
from ..inputs import Numbers
from ..machine import Machine

_SHAPE = (3, 4, 2, 100, 130, 64)
_SCALE = 0.125


@fault(
    "a bias of one row: wrong gradients",
    held="sdpa_core.cudnn.operands",
    remedy="a row for each query, of stride 0",
)
def one_row(machine: Machine, remedied: bool) -> Shown:
    numbers = Numbers(machine)
    operands, bias = numbers.dense(*_SHAPE), numbers.normal(3, 4, 1, 130)
    want = oracle.attention(*operands, _SCALE, bias=bias)
    declared = bias.expand(3, 4, 100, 130) if remedied else bias
    return against(_gradients(machine, operands, declared, bias.dtype, want), want)


@fault(
    "the gradient of a float32 bias, in float32",
    held="sdpa_core.cudnn.parts",
    remedy="a gradient in the query's type",
)
def float32(machine: Machine, remedied: bool) -> Shown:
    numbers = Numbers(machine)
    operands = numbers.dense(*_SHAPE)
    bias = numbers.normal(1, 4, 100, 130, dtype=torch.float32)
    want = oracle.attention(*operands, _SCALE, bias=bias)
    dtype = operands[0].dtype if remedied else torch.float32
    return against(_gradients(machine, operands, bias, dtype, want), want)


def _gradients(
    machine: Machine,
    operands: tuple[Tensor, ...],
    bias: Tensor,
    dtype: torch.dtype,
    want: dict[str, Tensor],
) -> dict[str, Tensor]:
    """Results, with the bias declared in this way and its gradient in ``dtype``."""
    grad = torch.zeros(bias.shape, dtype=dtype, device=bias.device)
    attention = Attention(*operands, _SCALE, inputs={"bias": bias}, gradients={"dBias": grad})
    got = dict(Attended(machine, attention).run())
    got["dBias"] = got["dBias"].double().sum_to_size(want["dBias"].shape)
    return got
