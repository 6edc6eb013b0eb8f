"""Stride arithmetic. Shapes and strides count elements; the last axis is the innermost."""

from __future__ import annotations

from collections.abc import Sequence

Shape = tuple[int, ...]
Strides = tuple[int, ...]


def row_major(shape: Sequence[int]) -> Strides:
    """Strides of a dense array whose last axis varies fastest.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def dense_in_order(shape: Sequence[int], order: Sequence[int]) -> Strides:
    """Dense strides of ``shape`` with the axes laid out outermost first as in ``order``."""
    strides = [1] * len(shape)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def physical_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The axes, outermost first, in which memory is walked; the last axis stays innermost.

    Axes of length 1 have no order of their own and keep their place. An expanded axis (stride 0)
    says nothing about memory either: such operands count as row-major (pytorch PR 175764, where
    sorting a stride of 0 put the head dimension outermost).

    >>> physical_order((2, 4, 8, 16), (512, 16, 64, 1))  # [B, H, S, D] stored as [B, S, H, D]
    (0, 2, 1, 3)
    """
    leading = [axis for axis in range(len(shape) - 1) if shape[axis] > 1]
    if any(strides[axis] == 0 for axis in leading):
        return tuple(range(len(shape)))
    by_stride = iter(sorted(leading, key=lambda axis: -strides[axis]))
    order = [next(by_stride) if axis in leading else axis for axis in range(len(shape))]
    return tuple(order)


def dense_like(shape: Sequence[int], like_shape: Sequence[int], strides: Sequence[int]) -> Strides:
    """Dense strides for ``shape`` in the physical order of another tensor of the same rank."""
    return dense_in_order(shape, physical_order(like_shape, strides))


def canonical_strides(shape: Sequence[int], strides: Sequence[int]) -> Strides:
    """The same addresses with one spelling: the stride of a length-1 axis is never used.

    Frameworks leave any number there (1 after ``unsqueeze``, say), which would split cache keys
    and trip alignment rules; here it becomes the extent of the longer axes.
    """
    if 0 in shape:
        return row_major(shape)
    spans = [n * s for n, s in zip(shape, strides, strict=True) if n > 1]
    inert = max(spans) if spans else 1  # (default= cannot be traced by torch.compile)
    result = [s if n > 1 else inert for n, s in zip(shape, strides, strict=True)]
    if shape and shape[-1] == 1:
        result[-1] = 1
    return tuple(result)


def reachable(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one addressed, both included; 0 when empty."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
