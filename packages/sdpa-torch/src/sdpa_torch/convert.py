"""Between torch tensors and what the core understands: specs, and rank-4 views."""

from __future__ import annotations

import torch
from torch import Tensor

from sdpa_core import DType
from sdpa_core.layout import dense_like
from sdpa_core.tensor import VECTOR_BYTES

DTYPES = {
    torch.float16: DType.FLOAT16,
    torch.bfloat16: DType.BFLOAT16,
    torch.float32: DType.FLOAT32,
    torch.float64: DType.FLOAT64,
    torch.int32: DType.INT32,
    torch.int64: DType.INT64,
    torch.uint8: DType.UINT8,
    torch.bool: DType.BOOL,
}
TORCH_DTYPES = {ours: theirs for theirs, ours in DTYPES.items()}


def dtype_of(name: str, dtype: torch.dtype) -> DType:
    """The core's name of an element type.

    Raises:
        TypeError: the library has no use for it.
    """
    try:
        return DTYPES[dtype]
    except KeyError:
        allowed = "float16, bfloat16, float32 or float64"
        raise TypeError(f"{name} has dtype {dtype}; attention takes {allowed}") from None


def misaligned(*tensors: Tensor) -> bool:
    """Whether an address is not a multiple of 16 bytes."""
    addresses = 0
    for tensor in tensors:
        addresses |= tensor.data_ptr()
    return addresses % VECTOR_BYTES != 0


def is_regular(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether vectors of 16 bytes can be read along the last axis of every row.

    Unit last stride, other strides multiples of 16 bytes. A head dimension that is itself not a
    multiple of 16 bytes counts as regular: no copy helps, the backend's rules refuse it.
    """
    step = VECTOR_BYTES // itemsize
    if shape[-1] % step or shape[-1] == 0:
        return True
    outer = zip(strides[:-1], shape[:-1], strict=True)
    return strides[-1] == 1 and all(length <= 1 or stride % step == 0 for stride, length in outer)


def vector_ready(tensor: Tensor) -> Tensor:
    """The tensor, or a dense copy in its order of axes if cuDNN cannot read it in place.

    cuDNN misreads or faults on other addresses and strides (pytorch PR 194818).
    """
    regular = is_regular(tensor.shape, tensor.stride(), tensor.element_size())
    if regular and not misaligned(tensor):
        return tensor
    shape = tuple(tensor.shape)
    return _cloned(tensor, dense_like(shape, shape, tensor.stride()))


def copied(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A copy with these strides, made behind autograd's back."""
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    # An expanded axis (stride 0) holds one element.
    written = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
    copy[written].copy_(tensor[written])
    return copy


def _cloned(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A copy with these dense strides, known to autograd."""
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis))
    back = sorted(range(tensor.dim()), key=order.__getitem__)
    dense = tensor.permute(order).clone(memory_format=torch.contiguous_format)
    return dense.permute(back)


def fold(
    query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
    """Rank-4 views ``[batch, heads, tokens, head_dim]``, and the output's leading axes.

    The axis before the tokens counts heads, all axes before it batch; both broadcast as in
    ``torch.nn.functional.scaled_dot_product_attention``. Fewer key heads than query heads stay
    as they are (no copy): one head serves all, and with ``enable_gqa`` each serves a group.

    Raises:
        ValueError: a rank below 2, leading axes that do not broadcast, or grouped heads without
            ``enable_gqa``.
    """
    if _is_folded(query, key, value, enable_gqa):
        return query, key, value, (query.shape[0], query.shape[1])
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if tensor.dim() < 2:
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}; "
                f"expected at least 2 axes [tokens, head_dim]"
            )
    batch = _broadcast_batch(query, key, value)
    heads_kv = _common_heads(key, value)
    heads = _heads(query)
    if heads == 1 < heads_kv:
        heads = heads_kv
    elif 1 < heads_kv < heads and not enable_gqa:
        raise ValueError(
            f"key has {heads_kv} heads, query has {heads}; pass enable_gqa=True for "
            f"grouped-query attention"
        )
    leading = () if query.dim() == key.dim() == value.dim() == 2 else (*batch, heads)
    return (
        _view(query, batch, heads),
        _view(key, batch, heads_kv),
        _view(value, batch, heads_kv),
        leading,
    )


def _is_folded(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> bool:
    """Whether there is nothing to fold: the common call, spared the general rules' 60 us."""
    if not query.dim() == key.dim() == value.dim() == 4:
        return False
    batch, heads = query.shape[:2]
    batch_kv, heads_kv = key.shape[:2]
    if batch != batch_kv or value.shape[0] != batch or value.shape[1] != heads_kv:
        return False
    return heads == heads_kv or (heads_kv < heads and (enable_gqa or heads_kv == 1))


def _heads(tensor: Tensor) -> int:
    return tensor.shape[-3] if tensor.dim() > 2 else 1


def _common_heads(key: Tensor, value: Tensor) -> int:
    ours, theirs = _heads(key), _heads(value)
    if ours != theirs and 1 not in (ours, theirs):
        raise ValueError(f"value has {theirs} heads, key has {ours}; they must be equal")
    return theirs if ours == 1 else ours


def _broadcast_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    batch: tuple[int, ...] = tuple(query.shape[:-3])
    for name, tensor in (("key", key), ("value", value)):
        try:
            batch = tuple(torch.broadcast_shapes(batch, tensor.shape[:-3]))
        except RuntimeError:
            raise ValueError(
                f"{name} has leading axes {list(tensor.shape[:-2])}, which do not broadcast with "
                f"those of the other operands, batch {list(batch)}"
            ) from None
    return batch


def _view(tensor: Tensor, batch: tuple[int, ...], heads: int) -> Tensor:
    tokens, head_dim = tensor.shape[-2:]
    expanded = tensor.expand(*batch, heads, tokens, head_dim)
    if len(batch) == 1:
        return expanded
    size = 1
    for length in batch:
        size *= length
    return expanded.reshape(size, heads, tokens, head_dim)
