"""How the operands of a problem lie in memory: dense, packed or in pages."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ...dtypes import DType
from ...layout import Shape
from ...paged import Paged
from ...ragged import Packed, packed_spec
from ...tensor import TensorSpec
from .common import Draw


@st.composite
def specs(draw: Draw[Any], shape: Shape, dtype: DType, *, odd: bool = True) -> TensorSpec:
    """A tensor with its axes in any order in memory, with gaps, repeats, and any alignment.

    Args:
        odd: the last axis need not be the innermost, and strides and addresses may be of any
            multiple of the element. Otherwise cuDNN can read it in place.
    """
    rank = len(shape)
    order = draw(st.permutations(range(rank if odd else rank - 1)))
    if not odd:
        order = [*order, rank - 1]
    strides = [1] * rank
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * max(shape[axis], 1) + draw(
            st.sampled_from((0, 0, 1, 8) if odd else (0, 0, 8))
        )
        step = step if odd else -(-step // 8) * 8
    for axis in draw(st.sets(st.integers(0, rank - 2), max_size=1)):
        strides[axis] = 0
    smallest = dtype.itemsize if odd else 16
    alignment = draw(st.sampled_from([n for n in (2, 4, 8, 16) if n >= smallest]))
    return TensorSpec(shape, tuple(strides), dtype, alignment)


@st.composite
def sides(draw: Draw[Any], packed: bool, batch: int, longest: int) -> Packed | None:
    """One side of a problem: packed in more, fewer or just as many rows as there may be."""
    if not packed:
        return None
    rows = st.sampled_from((batch * longest, longest, batch * longest // 2 + 7))
    return Packed(draw(rows), gaps=draw(st.booleans()))


@st.composite
def operands(
    draw: Draw[Any], shape: Shape, dtype: DType, packed: Packed | None, odd: bool
) -> TensorSpec:
    """An operand of the padded shape, packed if its side is."""
    if packed is None:
        found: TensorSpec = draw(specs(shape, dtype, odd=odd))
        return found
    batch, heads, longest, width = shape
    rows: TensorSpec = draw(specs((packed.tokens, heads, width), dtype, odd=odd))
    return packed_spec(
        rows.shape,
        rows.strides,
        dtype,
        batch=batch,
        max_tokens=longest,
        alignment=rows.alignment,
    )


@st.composite
def page_tables(draw: Draw[Any], batch: int, tokens: int) -> Paged:
    """Page tables of keys and values: one table, or two that lie differently."""
    shape = (batch, draw(st.integers(1, 40)))
    table, other = draw(specs(shape, DType.INT32)), draw(specs(shape, DType.INT32))
    return Paged(table, draw(st.sampled_from((table, other))), tokens)
