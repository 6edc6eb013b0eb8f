"""Comparing what an executor is handed with the described graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cudnn.graph import GraphSpec, Operand, Rule
from ..cudnn.memory import on_query_side
from ..dtypes import FLOATING, DType
from ..layout import Strides, canonical_strides
from ..plan import Plan
from ..tensor import VECTOR_BYTES
from .fake_sequences import Values, token_offsets


@dataclass(frozen=True)
class OperandView:
    """A device buffer as the executor is handed it.

    Attributes:
        array: its contents in the graph's order of axes, ``[T, H, D]`` if it is packed; of any
            floating or integer NumPy type that holds them exactly (bfloat16 as float32). Of int64
            also pairs of uint32 ``[..., 2]``, the low word first. Of a result only the shape
            counts.
        strides: of the real memory, in elements.
        dtype: the real element type.
        alignment: of the real address, in bytes, a power of two; None if it is not known.
    """

    array: NDArray[Any]
    strides: Strides
    dtype: DType
    alignment: int | None = None

    def numbers(self) -> NDArray[Any]:
        """The contents; of 64-bit integers without loss."""
        if self.array.dtype == np.uint32 and self.dtype is DType.INT64:
            low, high = (self.array[..., word].astype(np.uint64) for word in (0, 1))
            return (low | high << np.uint64(32)).view(np.int64)
        whole = self.array.dtype.kind in "iu"
        return self.array if whole else np.asarray(self.array, dtype=np.float64)


def faults(
    plan: Plan, operands: Mapping[int, OperandView], scalars: Mapping[int, float]
) -> Iterator[str]:
    """What is wrong with the operands of one call, in words."""
    described = {operand.uid: operand for operand in (*plan.inputs, *plan.outputs)}
    for uid, operand in described.items():
        if uid not in operands:
            yield f"{_name(operand)} is missing"
            continue
        for fault in _view_faults(operand, operands[uid]):
            yield f"{_name(operand)} has {fault}"
    for uid in operands.keys() - described.keys():
        yield f"uid {uid} is no operand of the graph"
    wanted = {operand.uid: operand for operand in plan.scalars}
    for uid, operand in wanted.items():
        if uid not in scalars:
            yield f"{_name(operand)} is missing"
        elif operand.constant is not None and scalars[uid] != operand.constant:
            yield f"{_name(operand)} is {scalars[uid]}, not the constant {operand.constant}"
    for uid in scalars.keys() - wanted.keys():
        yield f"uid {uid} is no scalar of the graph"


def sequence_faults(graph: GraphSpec, values: Values, rows: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with lengths and offsets, as far as the operands show it.

    Args:
        values: by role.
        rows: of the memory of packed operands, by role.
    """
    for operand in graph.operands:
        if operand.derived is not None:
            yield from _derived_faults(operand, values[operand.role])
    for side, first in (("q", "query"), ("kv", "key")):
        packed = [
            operand
            for operand in graph.operands
            if operand.ragged is not None and on_query_side(operand.role) == (side == "q")
        ]
        offsets = {operand.role: token_offsets(graph, values, operand) for operand in packed}
        for role, given in offsets.items():
            if not np.array_equal(given, offsets[first]):
                yield f"{role} starts its sequences at {given}, {first} at {offsets[first]}"
        lengths = _lengths_of(values, side)
        for role, given in offsets.items():
            if lengths is None or len(lengths) != len(given) - 1:
                yield f"{role} is packed without as many lengths as offsets"
                continue
            ends = given[:-1] + lengths
            if (ends[lengths > 0] > given[1:][lengths > 0]).any():
                yield f"sequences of {role} overlap: they start at {given}, have {lengths} tokens"
            if ends[lengths > 0].max(initial=0) > rows[role]:
                yield f"sequences of {role} end at {ends.max()}, its memory at {rows[role]}"


def _lengths_of(values: Values, side: str) -> NDArray[np.int64] | None:
    if f"cu_seq_len_{side}" in values:
        ends = values[f"cu_seq_len_{side}"].reshape(-1).astype(np.int64)
        return ends[1:] - ends[:-1]
    if f"seq_len_{side}" in values:
        return values[f"seq_len_{side}"][:, :1, :1, :1].reshape(-1).astype(np.int64)
    return None


def _derived_faults(operand: Operand, array: NDArray[Any]) -> Iterator[str]:
    assert operand.derived is not None
    given = array.reshape(-1).astype(np.int64)
    cumulative = operand.derived.source.startswith("cu_") and (
        operand.derived.rule is not Rule.DIFFERENCES
    )
    if (given < 0).any():
        yield f"{operand.role} holds negative numbers: {given}"
    if cumulative and (np.diff(given) < 0).any():
        yield f"{operand.role} falls: {given}"
    if cumulative and len(given) and given[0] != 0:
        yield f"{operand.role} does not start at 0: {given}"


def _view_faults(operand: Operand, view: OperandView) -> Iterator[str]:
    shape, strides = tuple(view.array.shape), tuple(view.strides)
    if view.array.dtype == np.uint32 and view.dtype is DType.INT64:
        shape, strides = shape[:-1], tuple(stride // 2 for stride in strides[:-1])
    wanted, steps = operand.shape, operand.strides
    if operand.ragged is not None and len(shape) == 3:
        # The graph's tokens are a bucket; in memory there are as many as the caller has.
        wanted = (shape[0], operand.shape[1], operand.shape[3])
        steps = (operand.strides[2], operand.strides[1], operand.strides[3])
    if shape != wanted:
        yield f"shape {list(shape)}, described {list(wanted)}"
    elif canonical_strides(shape, strides) != canonical_strides(shape, steps):
        yield f"strides {list(strides)}, described {list(steps)}"
    if view.dtype != operand.dtype:
        yield f"dtype {view.dtype}, described {operand.dtype}"
    vectors = operand.dtype in FLOATING
    if vectors and view.alignment is not None and view.alignment % VECTOR_BYTES:
        yield f"an address aligned to {view.alignment} bytes, needed {VECTOR_BYTES}"
    if operand.constant is not None and np.any(view.numbers() != operand.constant):
        yield f"values other than the constant {operand.constant}"


def _name(operand: Operand) -> str:
    return f"{operand.role} (uid {int(operand.uid)})"
