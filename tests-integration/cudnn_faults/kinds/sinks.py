"""Faults of the sink's gradient that are the same in every run."""

from __future__ import annotations

import torch

from ..attention import Attended, Attention
from ..fault import Shown, fault
from ..inputs import Numbers
from ..machine import Machine


@fault(
    "the sink's gradient under dropout lacks a factor",
    held="the sink's gradient under dropout is too small by the factor 1 - dropout_p",
    remedy=None,
)
def dropped(machine: Machine, remedied: bool) -> Shown:
    """``-sum exp(sink - LSE) (dO . O)``, with cuDNN's own O and LSE, whatever was dropped."""
    told, worst = [], 0.0
    for probability in (0.2, 0.5):
        numbers = Numbers(machine)
        operands = numbers.dense(2, 4, 2, 200, 300, 64)
        sink = numbers.normal(1, 4, 1, 1, dtype=torch.float32)
        state = [torch.full((1, 1, 1, 1), n, device=machine.device) for n in (20, 0)]
        given = Attention(
            *operands,
            0.125,
            inputs={"sink_token": sink},
            gradients={"dSink_token": torch.zeros_like(sink)},
            dropout=(probability, state[0], state[1]),
        )
        got = Attended(machine, given).run()
        if not machine.runs:
            continue
        incoming = (operands[3].double() * got["O"].double()).sum(-1, keepdim=True)
        want = -(torch.exp(sink.double() - got["LSE"].double()) * incoming).sum((0, 2, 3))
        factor = float(got["dSink"].double().flatten() @ want / (want @ want))
        worst = max(worst, abs(factor - 1))
        told.append(f"{factor:.3f} of it for {probability}")
    return Shown(worst > 0.02, ", ".join(told))
