"""A case's operands as they lie in memory, for any framework, and the problem they pose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import score_mod
from ..dtypes import FLOATING, DType
from ..layout import Shape, Strides, reachable, row_major
from ..logits import ScoreMod
from ..paged import Paged
from ..problem import AttentionProblem
from ..ragged import Packed, packed_spec
from ..tensor import VECTOR_BYTES, TensorSpec
from .case import Case, Inputs
from .layouts import View, bias_view, views
from .packing import Packing
from .rounding import decode, encode


@dataclass(frozen=True)
class Placed:
    """A view into a buffer: what ``as_strided`` takes. Units are elements.

    PyTorch::

        buffer = torch.from_numpy(placed.buffer).to(device)  # .view(torch.bfloat16) if it is bits
        tensor = buffer.as_strided(placed.shape, placed.strides, placed.offset)

    Attributes:
        buffer: one axis; shared by the views of packed operands. Its start counts as aligned;
            elements outside the view are NaN. bfloat16 is stored as ``uint16`` bits.
        shape, strides: of the view: ``[B, H, S, D]``, ``[T, H, D]`` of packed sequences,
            ``[pages, page_size, H, D]`` of pools.
        offset: of the view's first element.
        dtype: element type.
    """

    buffer: NDArray[Any]
    shape: Shape
    strides: Strides
    offset: int
    dtype: DType

    @property
    def spec(self) -> TensorSpec:
        """The view as the library sees it."""
        return _spec(View(self.shape, self.strides, self.offset), self.dtype)

    @property
    def stored(self) -> NDArray[Any]:
        """The view itself, in the buffer's element type."""
        steps = tuple(stride * self.buffer.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(self.buffer[self.offset :], self.shape, steps)

    def read(self) -> NDArray[np.float64]:
        """The numbers that the view shows."""
        return decode(self.stored, self.dtype)


class QueryKeyValue(NamedTuple):
    """Where the three lie."""

    query: Placed
    key: Placed
    value: Placed


def place(case: Case, inputs: Inputs) -> QueryKeyValue:
    """Query, key and value laid out as the case says. ``inputs`` need not be the case's own.

    Rows of packed tensors that belong to no sequence hold NaN.
    """
    query, key, value = in_memory(case, inputs)
    found = views(case)
    sizes = [view.offset + reachable(view.shape, view.strides) for view in found]
    buffers = [_filled_with_nan(size, case.dtype) for size in sizes]
    for shared in _SHARED.get(case.layout, ()):
        together = _filled_with_nan(max(sizes[i] for i in shared), case.dtype)
        for i in shared:
            buffers[i] = together
    placed = QueryKeyValue(
        *(Placed(buffer, *view, case.dtype) for buffer, view in zip(buffers, found, strict=True))
    )
    for target, array in zip(placed, (query, key, value), strict=True):
        target.stored[...] = encode(array, case.dtype)
    return placed


def place_all(case: Case, inputs: Inputs) -> dict[str, Placed]:
    """All operands by the names of ``AttentionProblem.inputs``, and ``mask`` and ``grad_output``.

    Besides query, key and value all are row-major and as callers give them: lengths, ``cu_seqlens``
    and page tables int32, a sink ``[Hq]``, slopes ``[Hq]`` or ``[B, Hq]``, scalars of a score_mod
    arrays without axes. A packed gradient of the output holds NaN where no sequence is.
    """
    query, key, value = place(case, inputs)
    placed = {"query": query, "key": key, "value": value}
    given: dict[str, tuple[ArrayLike | None, DType]] = {
        "mask": (inputs.mask, DType.BOOL),
        "alibi_slopes": (inputs.alibi_slopes, DType.FLOAT32),
        "sink": (inputs.sink, DType.FLOAT32),
        **{name: (array, DType.INT32) for name, array in _integers(case, inputs).items()},
    }
    auxiliary = case.score_mod_case.auxiliary if case.score_mod_case else ()
    for i, (described, array) in enumerate(zip(auxiliary, inputs.auxiliary, strict=True)):
        given[f"score_mod_{i}"] = (array, described.dtype)
    given["grad_output"] = (_packed(inputs.grad_output, case.packing_q), case.dtype)
    for name, (operand, dtype) in given.items():
        if operand is not None:
            placed[name] = dense(operand, dtype)
    if inputs.bias is not None and case.bias is not None:
        placed["bias"] = _placed(inputs.bias, bias_view(case, case.bias), case.effective_bias_dtype)
    return placed


def dense(array: ArrayLike, dtype: DType) -> Placed:
    """A row-major array."""
    shape = np.shape(array)
    return _placed(array, View(shape, row_major(shape)), dtype)


def _placed(array: ArrayLike, view: View, dtype: DType) -> Placed:
    size = view.offset + reachable(view.shape, view.strides)
    buffer = encode(np.zeros(size), dtype)
    if dtype in FLOATING:
        buffer = _filled_with_nan(size, dtype)
    placed = Placed(buffer, *view, dtype)
    placed.stored[...] = encode(array, dtype)
    return placed


def in_memory(case: Case, inputs: Inputs) -> tuple[Any, Any, Any]:
    """Query, key and value in the axes that callers give: padded, packed, or pools of pages."""
    query = _packed(inputs.query, case.packing_q)
    if case.page_size is not None:
        pages = case.pages(inputs)
        return query, pages.key_pool, pages.value_pool
    packing = case.packing_kv
    return query, _packed(inputs.key, packing), _packed(inputs.value, packing)


def problem_of(
    case: Case,
    *,
    training: bool = False,
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool = False,
) -> AttentionProblem:
    """The problem of a case whose operands are placed as its layout says.

    A mask is a bias of the query's type.
    """
    query, key, value = (_spec(view, case.dtype) for view in views(case))
    packing_q, packing_kv = case.packings
    paged = _paged(case)
    if paged is not None:
        key, value = (_with_heads_first(pool) for pool in (key, value))
    return AttentionProblem.of(
        _described(query, packing_q),
        _described(key, packing_kv),
        _described(value, packing_kv),
        band=case.band,
        bias=_bias_spec(case),
        alibi=case.alibi == "standard",
        alibi_slopes=_slopes_spec(case),
        softmax=case.softmax,
        softcap=case.softcap,
        score_mod=_score_mod(case),
        dropout_p=case.dropout_p,
        seq_lens_q=case.seq_lens_q is not None,
        seq_lens_kv=case.seq_lens_kv is not None,
        packed_q=_side(packing_q),
        packed_kv=_side(packing_kv),
        paged=paged,
        training=training,
        return_lse=return_lse,
        return_max_logit=return_max_logit,
        deterministic=deterministic,
        bias_grad=case.bias is not None and case.bias_grad,
        sink_grad=True,
    )


#: Which of query, key and value share a buffer.
_SHARED = {
    "packed_qkv": ((0, 1, 2),),
    "qkv_h3d": ((0, 1, 2),),
    "kv_packed": ((1, 2),),
    "kv_h2d": ((1, 2),),
}


def _packed(array: NDArray[Any], packing: Packing | None) -> NDArray[Any]:
    return array if packing is None else packing.pack(array)


def _integers(case: Case, inputs: Inputs) -> dict[str, ArrayLike | None]:
    found: dict[str, ArrayLike | None] = {
        "seq_lens_q": case.seq_lens_q,
        "seq_lens_kv": case.seq_lens_kv,
    }
    for side, packing in zip(("q", "kv"), case.packings, strict=True):
        if packing is not None:
            found[f"cu_seqlens_{side}"] = packing.cu_seqlens
            found[f"cu_seqlens_{side}_padded"] = packing.cu_seqlens_padded
    if case.page_size is not None:
        pages = case.pages(inputs)
        found |= {"page_table_k": pages.key_table, "page_table_v": pages.value_table}
    return found


def _spec(view: View, dtype: DType) -> TensorSpec:
    address = view.offset * dtype.itemsize
    alignment = min(address & -address, VECTOR_BYTES) if address else VECTOR_BYTES
    return TensorSpec(view.shape, view.strides, dtype, alignment)


def _described(spec: TensorSpec, packing: Packing | None) -> TensorSpec:
    if packing is None:
        return spec
    return packed_spec(
        spec.shape,
        spec.strides,
        spec.dtype,
        batch=len(packing.lengths),
        max_tokens=packing.padded,
        alignment=spec.alignment,
    )


def _side(packing: Packing | None) -> Packed | None:
    if packing is None:
        return None
    return Packed(packing.tokens, gaps=packing.cu_seqlens_padded is not None)


def _with_heads_first(pool: TensorSpec) -> TensorSpec:
    """``[pages, page_size, H, D]`` as ``[pages, H, page_size, D]``."""
    return TensorSpec(_swapped(pool.shape), _swapped(pool.strides), pool.dtype, pool.alignment)


def _swapped(axes: Sequence[int]) -> tuple[int, ...]:
    pages, tokens, heads, head_dim = axes
    return pages, heads, tokens, head_dim


def _paged(case: Case) -> Paged | None:
    if case.page_size is None:
        return None
    pages = -(-case.tokens_kv // case.page_size)
    table = TensorSpec.dense((case.batch, pages), DType.INT32)
    return Paged(table, table, pages * case.page_size)


def _bias_spec(case: Case) -> TensorSpec | None:
    if case.bias is not None:
        return _spec(bias_view(case, case.bias), case.effective_bias_dtype)
    if case.mask is not None:
        return TensorSpec.dense(case.shape_of(case.mask), case.dtype)
    return None


def _slopes_spec(case: Case) -> TensorSpec | None:
    if case.alibi in {None, "standard"}:
        return None
    batch = case.batch if case.alibi == "batch_head" else 1
    return TensorSpec.dense((batch, case.heads, 1, 1), DType.FLOAT32)


def _score_mod(case: Case) -> ScoreMod | None:
    function = case.score_mod_case
    if function is None:
        return None
    specs = tuple(
        None if shape is None else TensorSpec.dense(shape, operand.dtype)
        for operand, shape in zip(function.auxiliary, case.auxiliary_shapes, strict=True)
    )
    arguments = [
        score_mod.ScalarArg() if spec is None else score_mod.TensorArg(spec.dtype, spec.shape)
        for spec in specs
    ]
    traced = score_mod.trace(function.callback, arguments)
    gradient = None
    if function.bprop is not None:
        gradient = score_mod.trace_bprop(function.bprop, arguments).expression
    return ScoreMod(
        traced.expression,
        gradient,
        tensors=tuple(spec for spec in specs if spec is not None),
        scalars=len(traced.scalars),
    )


def _filled_with_nan(count: int, dtype: DType) -> NDArray[Any]:
    return encode(np.full(count, np.nan), dtype)
