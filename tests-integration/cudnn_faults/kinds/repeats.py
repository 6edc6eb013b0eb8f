"""Faults of what should repeat: results that differ from run to run."""

from __future__ import annotations

from collections.abc import Iterator

import cudnn
import torch

from ..attention import Attended, Attention
from ..compare import any_wrong, differing, words
from ..fault import Shown, fault
from ..inputs import Numbers
from ..machine import Machine

_RUNS_OF_A_FORWARD_PASS = 200
_RUNS_OF_A_BACKWARD_PASS = 25


@fault(
    "log-sum-exp of a single query with split keys differs from run to run",
    held="log-sum-exp of a single query differs from run to run where its keys are split",
    remedy="a plan that does not split them",
)
def single_query(machine: Machine, remedied: bool) -> Shown:
    told, bad = [], False
    for keys in (512, 2048, 16384):
        operands = Numbers(machine).dense(4, 32, 8, 1, keys, 128)
        avoided = "_k24=35" if remedied else None
        attended = Attended(machine, Attention(*operands, 128**-0.5, avoided=avoided))
        results = {"O": attended.output, "LSE": attended.stats}
        counts, runs = differing(attended.forward, results, _RUNS_OF_A_FORWARD_PASS)
        figure = f"{words(counts)} in {runs} of {_RUNS_OF_A_FORWARD_PASS} runs"
        told.append(f"{keys} keys: {figure}, {attended.forward.engine}")
        bad |= any_wrong(counts)
    return Shown(bad, "; ".join(told))


@fault(
    "the sink's gradient, deterministic, differs from run to run",
    held="the gradient of a sink differs from run to run, deterministic or not",
    remedy=None,
)
def sink(machine: Machine, remedied: bool) -> Shown:
    return _of_backward_passes(_with_sinks(machine), machine)


def _with_sinks(machine: Machine) -> Iterator[tuple[str, Attention]]:
    for shape, causal in (
        ((2, 4, 2, 40, 72, 64), False),
        ((1, 4, 2, 700, 700, 64), True),
        ((2, 16, 4, 1024, 1024, 128), False),
    ):
        numbers = Numbers(machine)
        operands = numbers.dense(*shape)
        given = numbers.normal(1, shape[1], 1, 1, dtype=torch.float32)
        yield (
            f"{shape}{' causal' if causal else ''}",
            Attention(
                *operands,
                shape[-1] ** -0.5,
                inputs={"sink_token": given},
                options=_CAUSAL if causal else {},
                gradients={"dSink_token": torch.zeros_like(given)},
                backward_options=_DETERMINISTIC,
            ),
        )


_DETERMINISTIC = {"use_deterministic_algorithm": True}
_CAUSAL = {
    "diagonal_alignment": cudnn.diagonal_alignment.TOP_LEFT,
    "diagonal_band_right_bound": 0,
}


def _of_backward_passes(attentions: Iterator[tuple[str, Attention]], machine: Machine) -> Shown:
    """Several shapes, each after one forward pass; only those that differ are told."""
    told, shapes = [], 0
    for name, attention in attentions:
        attended = Attended(machine, attention)
        attended.forward()
        results = {key: one for key, one in attended.results.items() if key.startswith("d")}
        counts, runs = differing(attended.backward, results, _RUNS_OF_A_BACKWARD_PASS)
        shapes += 1
        if any_wrong(counts):
            told.append(f"{name}: {words(counts)} in {runs} runs")
    figure = f"{len(told)} of {shapes} shapes differ in {_RUNS_OF_A_BACKWARD_PASS} runs"
    return Shown(bool(told), "; ".join([figure, *told]))
