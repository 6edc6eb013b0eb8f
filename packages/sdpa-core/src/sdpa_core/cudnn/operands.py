"""Operands of a graph from the tensors of a problem."""

from __future__ import annotations

from ..dtypes import DType
from ..tensor import TensorSpec
from .graph import Operand, OperandKind
from .uids import F16Uid


def tensor(uid: F16Uid, spec: TensorSpec, kind: OperandKind = OperandKind.INPUT) -> Operand:
    """An operand that the caller provides, or a result."""
    return Operand(uid, uid.role, kind, spec.shape, spec.strides, spec.dtype)


def constant(uid: F16Uid, spec: TensorSpec, value: int) -> Operand:
    """An input that holds one value everywhere."""
    return Operand(
        uid, uid.role, OperandKind.INPUT, spec.shape, spec.strides, spec.dtype, constant=value
    )


def scale() -> Operand:
    """The softmax scale, read from the host at launch.

    One plan then serves every scale. It costs nothing: on an H200 with cuDNN 9.19 it is as fast as
    a scale stored in the graph (docs/decisions.md).
    """
    ones = (1, 1, 1, 1)
    uid = F16Uid.SCALE
    return Operand(uid, uid.role, OperandKind.HOST_SCALAR, ones, ones, DType.FLOAT32)


def lengths(batch: int, tokens_q: int, tokens_kv: int) -> tuple[Operand, Operand]:
    """Full sequence lengths in tokens: int32 ``[B, 1, 1, 1]``, hiding nothing."""
    spec = TensorSpec.dense((batch, 1, 1, 1), DType.INT32)
    return (
        constant(F16Uid.SEQ_LEN_Q, spec, tokens_q),
        constant(F16Uid.SEQ_LEN_KV, spec, tokens_kv),
    )
