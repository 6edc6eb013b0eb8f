"""The operands of a case in their buffers."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import ArrayLike, NDArray

from ...dtypes import DType
from ...layout import reachable
from ..case import Case, Inputs
from ..layouts import bias_view, views
from ..packing import Packing
from ..rounding import encode
from .placed import Placed, dense, filled_with_nan, placed_in

#: Which of query, key and value share a buffer.
_SHARED = {
    "packed_qkv": ((0, 1, 2),),
    "qkv_h3d": ((0, 1, 2),),
    "kv_packed": ((1, 2),),
    "kv_h2d": ((1, 2),),
}


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
    buffers = [filled_with_nan(size, case.dtype) for size in sizes]
    for shared in _SHARED.get(case.layout, ()):
        together = filled_with_nan(max(sizes[i] for i in shared), case.dtype)
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
        placed["bias"] = placed_in(
            inputs.bias, bias_view(case, case.bias), case.effective_bias_dtype
        )
    return placed


def in_memory(case: Case, inputs: Inputs) -> tuple[Any, Any, Any]:
    """Query, key and value in the axes that callers give: padded, packed, or pools of pages."""
    query = _packed(inputs.query, case.packing_q)
    if case.page_size is not None:
        pages = case.pages(inputs)
        return query, pages.key_pool, pages.value_pool
    packing = case.packing_kv
    return query, _packed(inputs.key, packing), _packed(inputs.value, packing)


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
