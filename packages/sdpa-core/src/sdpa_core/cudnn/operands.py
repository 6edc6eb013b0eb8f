"""Operands of a graph from the tensors of a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..dtypes import DType
from ..problem import AttentionProblem, Softmax
from ..tensor import TensorSpec
from .graph import Derived, Operand, OperandKind, Rule
from .uids import F16Uid

_ONE = (1, 1, 1, 1)


def tensor(uid: F16Uid, spec: TensorSpec, kind: OperandKind = OperandKind.INPUT) -> Operand:
    """An operand that the caller provides, or a result."""
    return Operand(uid, uid.role, kind, spec.shape, spec.strides, spec.dtype)


def constant(uid: F16Uid, spec: TensorSpec, value: float) -> Operand:
    """An input that holds one value everywhere."""
    return Operand(
        uid, uid.role, OperandKind.INPUT, spec.shape, spec.strides, spec.dtype, constant=value
    )


def derived(uid: F16Uid, spec: TensorSpec, rule: Derived) -> Operand:
    """An input that is computed from what the caller gave."""
    return Operand(
        uid, uid.role, OperandKind.INPUT, spec.shape, spec.strides, spec.dtype, derived=rule
    )


def scale() -> Operand:
    """The softmax scale, read from the host at launch.

    One plan then serves every scale. It costs nothing: on an H200 with cuDNN 9.19 it is as fast as
    a scale stored in the graph (docs/decisions.md).
    """
    uid = F16Uid.SCALE
    return Operand(uid, uid.role, OperandKind.HOST_SCALAR, _ONE, _ONE, DType.FLOAT32)


def lengths(problem: AttentionProblem, tokens_q: int) -> Iterator[Operand]:
    """Sequence lengths in tokens, int32 ``[batch, 1, 1, 1]`` for each side.

    Of a side whose sequences are all full, a constant.

    Args:
        tokens_q: of the caller's queries; what is declared may be more.
    """
    spec = TensorSpec.dense((problem.batch, 1, 1, 1), DType.INT32)
    sides = (
        (F16Uid.SEQ_LEN_Q, "q", problem.seq_lens_q, problem.packed_q, tokens_q),
        (F16Uid.SEQ_LEN_KV, "kv", problem.seq_lens_kv, problem.packed_kv, problem.tokens_kv),
    )
    for uid, side, given, packed, tokens in sides:
        if packed is not None:
            yield derived(uid, spec, Derived(Rule.DIFFERENCES, f"cu_seqlens_{side}"))
        elif given:
            yield derived(uid, spec, Derived(Rule.LENGTHS, f"seq_lens_{side}"))
        else:
            yield constant(uid, spec, tokens)


def cumulative_lengths(batch: int) -> Iterator[Operand]:
    """``cu_seqlens`` of both sides, int32 ``[batch + 1, 1, 1, 1]``."""
    spec = TensorSpec.dense((batch + 1, 1, 1, 1), DType.INT32)
    for uid, side in ((F16Uid.CU_SEQ_LEN_Q, "q"), (F16Uid.CU_SEQ_LEN_KV, "kv")):
        yield derived(uid, spec, Derived(Rule.LENGTHS, f"cu_seqlens_{side}"))


def spread(spec: TensorSpec, tokens_q: int, tokens_kv: int) -> TensorSpec:
    """The same memory with token axes of length 1 declared longer, with stride 0, where need be.

    Of ``[b, h, 1, Skv]``, one declared row for all queries, cuDNN 9.19 makes wrong gradients (H200;
    of query, key and value too). In functions of the logits it misreads ``[B, h, 1, 1]``, and
    cuDNN 9.28 refuses ``[b, h, Sq, 1]`` in the backward pass on compute capability 8.x and 12.x.
    """
    batch, heads, rows, keys = spec.shape
    per_batch, per_head, per_row, per_key = spec.strides
    if keys == 1 and (rows > 1 or batch > 1):
        keys, per_key = tokens_kv, 0
    elif keys > 1 and rows == 1:
        rows, per_row = tokens_q, 0
    return replace(
        spec,
        shape=(batch, heads, rows, keys),
        strides=(per_batch, per_head, per_row, per_key),
    )


def bias_spec(problem: AttentionProblem) -> TensorSpec | None:
    """The bias as graphs declare it: with as many rows as there are queries."""
    return problem.bias and spread(problem.bias, problem.tokens_q, problem.tokens_kv)


def sink(problem: AttentionProblem) -> Iterator[Operand]:
    """The sink's logit of each head, float32 ``[1, Hq, 1, 1]``; 0 for off-by-one."""
    spec = TensorSpec.dense((1, problem.heads, 1, 1), DType.FLOAT32)
    if problem.softmax is Softmax.LEARNABLE:
        yield tensor(F16Uid.SINK, spec)
    elif problem.softmax is Softmax.OFF_BY_ONE:
        yield constant(F16Uid.SINK, spec, 0.0)


def dropout(problem: AttentionProblem) -> Iterator[Operand]:
    """Seed and offset of the random numbers, int64 (pytorch PR 146734: int32 fails on sm100)."""
    if problem.dropout_p > 0:
        spec = TensorSpec.dense(_ONE, DType.INT64)
        yield tensor(F16Uid.DROPOUT_SEED, spec)
        yield tensor(F16Uid.DROPOUT_OFFSET, spec)


def page_tables(problem: AttentionProblem) -> Iterator[Operand]:
    """int32 ``[B, 1, pages, 1]`` with the tables' real strides (flashinfer PR 4270, item 6)."""
    if problem.paged is None:
        return
    tables = (
        (F16Uid.PAGE_TABLE_K, problem.paged.key_table),
        (F16Uid.PAGE_TABLE_V, problem.paged.value_table),
    )
    for uid, table in tables:
        (batch, pages), (row, column) = table.shape, table.strides
        yield tensor(uid, TensorSpec((batch, 1, pages, 1), (row, row, column, 1), table.dtype))
