"""What the graphs of all families share: operands of both directions, and of features."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import DeviceSpec
from ..dtypes import DType
from ..problem import AttentionProblem, Direction
from ..ragged import packed_like
from ..tensor import TensorSpec
from . import operands
from .dimensions import has_packed_stats, takes_cumulative_lengths
from .graph import Operand, OperandKind
from .offsets import Offsets
from .uids import F16Uid

_OUT = OperandKind.OUTPUT


def tensors(declared: AttentionProblem, device: DeviceSpec, direction: Direction) -> list[Operand]:
    """Operands of one direction, with the offsets of those that are packed."""
    forward = direction is Direction.FORWARD
    packed_stats = has_packed_stats(declared, device)
    offsets = Offsets(declared, takes_cumulative_lengths(declared, device, direction), packed_stats)
    stats = _stats_spec(declared, packed_stats)
    own = _forward(declared, stats) if forward else _backward(declared, stats)
    attached = offsets.attach([*_inputs(declared), *own])
    shared = [] if forward else _shared_gradients(declared)
    return [*attached, *offsets.operands, *_features(declared, direction), *shared]


def _inputs(problem: AttentionProblem) -> Iterator[Operand]:
    yield operands.tensor(F16Uid.QUERY, problem.query)
    yield operands.tensor(F16Uid.KEY, problem.key)
    yield operands.tensor(F16Uid.VALUE, problem.value)


def _forward(problem: AttentionProblem, stats: TensorSpec) -> Iterator[Operand]:
    yield operands.tensor(F16Uid.OUTPUT, problem.output, _OUT)
    if problem.needs_stats:
        yield operands.tensor(F16Uid.STATS, stats, _OUT)
    if problem.return_max_logit:
        yield operands.tensor(F16Uid.MAX_LOGIT, stats, _OUT)


def _backward(problem: AttentionProblem, stats: TensorSpec) -> Iterator[Operand]:
    yield operands.tensor(F16Uid.OUTPUT, problem.output)
    yield operands.tensor(F16Uid.STATS, stats)
    yield operands.tensor(F16Uid.GRAD_OUTPUT, problem.incoming_gradient())
    yield operands.tensor(F16Uid.GRAD_QUERY, _gradient(problem.query, problem.packed_q), _OUT)
    yield operands.tensor(F16Uid.GRAD_KEY, _gradient(problem.key, problem.packed_kv), _OUT)
    yield operands.tensor(F16Uid.GRAD_VALUE, _gradient(problem.value, problem.packed_kv), _OUT)


def _shared_gradients(problem: AttentionProblem) -> Iterator[Operand]:
    """Of what all sequences share, so that no offsets say where one starts."""
    bias = operands.bias_spec(problem)
    if problem.bias_grad and bias is not None:
        # In the query's type: cuDNN has no gradient in float32 of a float32 bias. Of every row,
        # also where one bias serves all rows: the adapters add them up.
        spec = TensorSpec.dense(bias.shape, problem.query.dtype)
        yield operands.tensor(F16Uid.GRAD_BIAS, spec, _OUT)
    if problem.sink_grad:
        spec = TensorSpec.dense((1, problem.heads, 1, 1), DType.FLOAT32)
        yield operands.tensor(F16Uid.GRAD_SINK, spec, _OUT)


def _gradient(spec: TensorSpec, packed: object) -> TensorSpec:
    """Dense, in the order of its operand, which is dense itself if it is packed."""
    return spec if packed is not None else spec.like(spec.shape)


def _stats_spec(problem: AttentionProblem, packed: bool) -> TensorSpec:
    """Of the log-sum-exp and the largest logits.

    Dense ones are row-major: cuDNN before 9.26 ignores other strides in some backward kernels
    (cudnn-frontend PR 304).
    """
    batch, heads, tokens, _ = problem.query.shape
    shape = (batch, heads, tokens, 1)
    if packed:
        return packed_like(TensorSpec.dense(shape, DType.FLOAT32), shape)
    return TensorSpec.dense(shape, DType.FLOAT32)


def _features(problem: AttentionProblem, direction: Direction) -> Iterator[Operand]:
    yield operands.scale()
    # The log-sum-exp knows the sink: the backward pass needs it for its gradient alone, and the
    # frontend leaves it out of the graph otherwise.
    if direction is Direction.FORWARD or problem.sink_grad:
        yield from operands.sink(problem)
    yield from operands.dropout(problem)
    yield from operands.page_tables(problem)
