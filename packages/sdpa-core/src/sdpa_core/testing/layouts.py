"""The memory of query, key and value in each layout of a case."""

from __future__ import annotations

from typing import NamedTuple

from ..layout import Shape, Strides, dense_in_order, row_major
from .case import Axes, Case


class View(NamedTuple):
    """Part of a buffer, in elements."""

    shape: Shape
    strides: Strides
    offset: int = 0


def views(case: Case) -> tuple[View, View, View]:
    """Of query, key and value, in the axes that callers give."""
    if case.page_size is not None:
        pages = case.batch * -(-case.tokens_kv // case.page_size) + 1
        pool = (pages, case.page_size, case.heads_kv)
        key, value = _rows((*pool, case.head_dim)), _rows((*pool, case.head_dim_v))
        return _operand(case, 0), key, value
    return _operand(case, 0), _operand(case, 1), _operand(case, 2)


def bias_view(case: Case, axes: Axes) -> View:
    """Of the bias."""
    shape = case.shape_of(axes)
    _, heads, rows, columns = shape
    match case.bias_layout:
        case "transposed":
            return _ordered(shape, (0, 1, 3, 2))
        case "padded_rows":
            row = columns + 8
            return View(shape, (heads * rows * row, rows * row, row, 1))
        case _:
            return _rows(shape)


def _operand(case: Case, which: int) -> View:
    """Query, key or value: 0, 1 or 2."""
    shape = (case.query_shape, case.key_shape, case.value_shape)[which]
    packing = case.packing_q if which == 0 else case.packing_kv
    batch, heads, tokens, head_dim = shape
    if packing is not None:
        batch, tokens = 1, packing.tokens
    view = _in_batches(case, which, (batch, heads, tokens, head_dim))
    if packing is None:
        return view
    _, per_head, per_token, per_element = view.strides
    return View((tokens, heads, head_dim), (per_token, per_head, per_element), view.offset)


def _in_batches(case: Case, which: int, shape: tuple[int, int, int, int]) -> View:
    """``[B, H, S, D]`` in the case's layout."""
    packed = (case.packs_q, case.packs_kv, case.packs_kv)[which]
    layout = "bshd" if packed and case.layout == "bhsd" else case.layout
    batch, heads, tokens, head_dim = shape
    parts = {"packed_qkv": 3, "qkv_h3d": 3, "kv_packed": 2, "kv_h2d": 2}.get(layout, 1)
    part = which if parts == 3 else max(which - 1, 0)
    if parts == 2 and which == 0:
        layout = "bshd"
    row = heads * head_dim
    match layout:
        case "packed_qkv" | "kv_packed":
            strides = (tokens * parts * row, head_dim, parts * row, 1)
            return View(shape, strides, part * row)
        case "qkv_h3d" | "kv_h2d":
            strides = (tokens * parts * row, parts * head_dim, parts * row, 1)
            return View(shape, strides, part * head_dim)
        case "bshd":
            return _ordered(shape, (0, 2, 1, 3))
        case "sbhd":
            return _ordered(shape, (2, 0, 1, 3))
        case "odd_rows":
            return View(shape, (tokens * (row + 1), head_dim, row + 1, 1))
        case "expanded_kv" if which > 0:
            outer, _, inner, column = row_major((batch, 1, tokens, head_dim))
            return View(shape, (outer, 0, inner, column))
        case "unaligned":
            order = (0, 2, 1, 3) if packed else (0, 1, 2, 3)
            return _ordered(shape, order)._replace(offset=1)
        case _:
            return _ordered(shape, (0, 2, 1, 3) if packed else (0, 1, 2, 3))


def _ordered(shape: Shape, order: tuple[int, ...]) -> View:
    return View(shape, dense_in_order(shape, order))


def _rows(shape: Shape) -> View:
    return View(shape, row_major(shape))
