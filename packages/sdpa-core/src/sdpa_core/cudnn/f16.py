"""Graphs of 16-bit attention: ``sdpa`` and ``sdpa_backward`` with float32 accumulation."""

from __future__ import annotations

from ..device import DeviceSpec
from ..problem import AttentionProblem, Direction
from . import operands
from .graph import GraphSpec, Operand, OperandKind
from .known_bad import wants_full_lengths, workspace_limit
from .options import band_options
from .uids import F16Uid


def describe(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> GraphSpec:
    """The graph of one direction of a problem, as plain values.

    Forward: query, key, value (and the scale) to output and, if needed, stats.
    Backward: those and the gradient of the output to the gradients of query, key and value,
    stored like the tensors they belong to.
    """
    forward = direction is Direction.FORWARD
    tensors = _forward(problem) if forward else _backward(problem)
    options = band_options(problem.band)
    if forward:
        options["generate_stats"] = problem.needs_stats
    elif problem.deterministic:
        options["use_deterministic_algorithm"] = True
    if wants_full_lengths(problem, device, direction):
        options["use_padding_mask"] = True
        batch, _, tokens_q, _ = problem.query.shape
        tensors += operands.lengths(batch, tokens_q, problem.key.shape[2])
    return GraphSpec(
        operation="sdpa" if forward else "sdpa_backward",
        io_dtype=problem.query.dtype,
        operands=tuple(sorted((*tensors, operands.scale()), key=lambda operand: operand.uid)),
        options=tuple(sorted(options.items())),
        workspace_limit=workspace_limit(problem, device, direction),
    )


def _forward(problem: AttentionProblem) -> tuple[Operand, ...]:
    out = OperandKind.OUTPUT
    stats = (operands.tensor(F16Uid.STATS, problem.stats, out),) if problem.needs_stats else ()
    return (
        operands.tensor(F16Uid.QUERY, problem.query),
        operands.tensor(F16Uid.KEY, problem.key),
        operands.tensor(F16Uid.VALUE, problem.value),
        operands.tensor(F16Uid.OUTPUT, problem.output, out),
        *stats,
    )


def _backward(problem: AttentionProblem) -> tuple[Operand, ...]:
    query, key, value = problem.query, problem.key, problem.value
    out = OperandKind.OUTPUT
    return (
        operands.tensor(F16Uid.QUERY, query),
        operands.tensor(F16Uid.KEY, key),
        operands.tensor(F16Uid.VALUE, value),
        operands.tensor(F16Uid.OUTPUT, problem.output),
        operands.tensor(F16Uid.STATS, problem.stats),
        operands.tensor(F16Uid.GRAD_OUTPUT, problem.incoming_gradient()),
        operands.tensor(F16Uid.GRAD_QUERY, query.like(query.shape), out),
        operands.tensor(F16Uid.GRAD_KEY, key.like(key.shape), out),
        operands.tensor(F16Uid.GRAD_VALUE, value.like(value.shape), out),
    )
