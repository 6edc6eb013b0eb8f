"""Faults of functions of the logits (``score_mod``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import oracle
from ..attention import Attended, Attention
from ..fault import Shown, against, fault
from ..functions import Function, Pointwise, passed_on
from ..inputs import Numbers, within
from ..machine import Machine

_SCALE = 0.125
_COMPARED = {"computed": "BOOLEAN", "result": "BOOLEAN"}


def _shown(
    machine: Machine,
    operands: tuple[Tensor, ...],
    function: Function,
    want: dict[str, Tensor],
    read: tuple[Tensor, ...] = (),
) -> Shown:
    attention = Attention(*operands, _SCALE, function=function, read=read)
    return against(Attended(machine, attention).run(), want)


@fault(
    "[B, 1, 1, 1] operands of functions of the logits are misread",
    held="sdpa_core.cudnn.operands",
    remedy="[B, 1, 1, Skv], with keys of stride 0",
)
def misread_lengths(machine: Machine, remedied: bool) -> Shown:
    numbers = Numbers(machine)
    operands, lengths = numbers.dense(3, 4, 2, 100, 130, 64), numbers.lengths(130, 5, 64)
    want = oracle.attention(*operands, _SCALE, visible=within(lengths, 130).mT)
    declared = lengths.expand(3, 1, 1, 130) if remedied else lengths
    return _shown(machine, operands, Function(before_the_length, passed_on), want, (declared,))


def before_the_length(at: Pointwise, read: dict[int, Any]) -> Any:
    from_end = at("sub", a=at.position(3), b=read[0], computed="INT32", result="INT32")
    return at.where(at("cmp_lt", input=from_end, comparison=at.number(0), **_COMPARED), at.score)


@fault(
    "integer operations of functions of the logits are computed in float32",
    held="sdpa_core.cudnn.score_graph",
    remedy="ints are computed as INT32, their comparisons as BOOLEAN",
)
def integers(machine: Machine, remedied: bool) -> Shown:
    operands = Numbers(machine).dense(2, 4, 2, 256, 256, 64)
    position = torch.arange(256, device=machine.device)
    visible = position[:, None] - position[None] <= _WINDOW
    want = oracle.attention(*operands, _SCALE, visible=visible)
    types = ("INT32", "BOOLEAN") if remedied else ("FLOAT", "FLOAT")
    function = Function(lambda at, read: _window(at, *types), passed_on)
    return _shown(machine, operands, function, want)


_WINDOW = 16


def _window(at: Pointwise, computed: str, compared: str) -> Any:
    """Keys at most so far behind their query; every query sees later ones."""
    rows, columns = at.position(2), at.position(3)
    distance = at("sub", a=rows, b=columns, computed=computed, result="INT32")
    bound = at.number(_WINDOW)
    near = at("cmp_le", input=distance, comparison=bound, computed=compared, result="BOOLEAN")
    return at.where(near, at.score)


@fault(
    "tiles filled up with -inf make the gradients of a function NaN",
    held="sdpa_core.cudnn.flex",
    remedy="the backward pass hides what is past the tokens",
)
def filled_tiles(machine: Machine, remedied: bool) -> Shown:
    operands = Numbers(machine).dense(2, 4, 2, 100, 130, 64)
    want = oracle.attention(*operands, _SCALE, function=lambda score: 1 - score)
    hidden = (lambda at, read: _inside(at, 100, 130)) if remedied else None
    return _shown(machine, operands, Function(_one_minus, _negated, hidden), want)


def _one_minus(at: Pointwise, read: dict[int, Any]) -> Any:
    return at("add", a=at("neg", input=at.score), b=at.number(1.0))


def _negated(at: Pointwise, read: dict[int, Any], grad: Any) -> Any:
    return at("neg", input=grad)


def _inside(at: Pointwise, tokens_q: int, tokens_kv: int) -> Any:
    row, column = (
        at("cmp_lt", input=at.position(axis), comparison=at.number(tokens), **_COMPARED)
        for axis, tokens in ((2, tokens_q), (3, tokens_kv))
    )
    return at.where(at("logical_and", a=row, b=column, result="BOOLEAN"), _one_minus(at, {}))


@fault(
    "the gradient of c / x, with c spread to the logits' shape, is wrong",
    held="sdpa_core.cudnn.score_form",
    remedy="c times the reciprocal of x",
)
def spread_numerator(machine: Machine, remedied: bool) -> Shown:
    """``2 / (S**2 + 0.5)``."""
    operands = Numbers(machine).dense(2, 4, 2, 256, 256, 64)
    want = oracle.attention(*operands, _SCALE, function=lambda score: 2 / (score**2 + 0.5))
    quotient = _as_product if remedied else _as_quotient
    function = Function(
        lambda at, read: quotient(at, _square_and_half(at)),
        lambda at, read, grad: _slope(at, grad, quotient),
    )
    return _shown(machine, operands, function, want)


@fault(
    "the gradient of c ** x, with c added to integer zeros for the logits' shape, is wrong",
    held="sdpa_core.cudnn.score_form",
    remedy="c added to float zeros",
)
def spread_base(machine: Machine, remedied: bool) -> Shown:
    """``2 ** S``."""
    operands = Numbers(machine).dense(2, 4, 2, 256, 256, 64)
    want = oracle.attention(*operands, _SCALE, function=lambda score: 2**score)
    function = Function(
        lambda at, read: _power_of_two(at, remedied),
        lambda at, read, grad: at(
            "mul", a=at("mul", a=grad, b=_power_of_two(at, remedied)), b=at.number(math.log(2))
        ),
    )
    return _shown(machine, operands, function, want)


def _power_of_two(at: Pointwise, float_zeros: bool) -> Any:
    position, kind = at.position(2), "INT32"
    if float_zeros:
        position, kind = at("identity", input=position), "FLOAT"
    zero = at.number(0.0 if float_zeros else 0)
    zeros = at("mul", a=position, b=zero, computed=kind, result=kind)
    if not float_zeros:
        zeros = at("identity", input=zeros)
    return at("pow", input0=at("add", a=zeros, b=at.number(2.0)), input1=at.score)


def _square_and_half(at: Pointwise) -> Any:
    return at("add", a=at("mul", a=at.score, b=at.score), b=at.number(0.5))


def _as_quotient(at: Pointwise, x: Any) -> Any:
    zeros = at("mul", a=at.position(2), b=at.number(0), computed="INT32", result="INT32")
    twos = at("add", a=at("identity", input=zeros), b=at.number(2.0))
    return at("div", a=twos, b=x)


def _as_product(at: Pointwise, x: Any) -> Any:
    return at("mul", a=at("reciprocal", input=x), b=at.number(2.0))


def _slope(at: Pointwise, grad: Any, quotient: Callable[[Pointwise, Any], Any]) -> Any:
    """``-grad y / x * 2 S`` with ``y = 2 / x``, as ``score_mod.derivative`` has it."""
    x = _square_and_half(at)
    inner = at("neg", input=at("div", a=at("mul", a=grad, b=quotient(at, x)), b=x))
    return at("mul", a=inner, b=at("add", a=at.score, b=at.score))
