"""Packed sequences ("THD"): their description, and the dimensions that a plan declares for them.

Sequences of one side lie one after another in a tensor ``[tokens, heads, head_dim]``; with gaps,
each starts where ``cu_seqlens_padded`` says, otherwise where ``cu_seqlens`` does. Both are int32
``[batch + 1]`` and count tokens. cuDNN sees ``[batch, heads, tokens, head_dim]`` with a ragged
offset for each sequence, and makes a plan for fixed dimensions, so dimensions are rounded up to
buckets: one plan then serves every batch in its bucket. Sequences that only fill up the batch have
length 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from .device import DeviceSpec
from .dtypes import DType
from .layout import Shape, Strides, canonical_strides
from .tensor import TensorSpec

#: The first cuDNN whose ragged tensors may be larger than the batch, and whose statistics may be
#: packed (TransformerEngine fused_attn_f16_arbitrary_seqlen.cu).
_BUCKETS_SINCE = 90600


@dataclass(frozen=True, slots=True)
class Packed:
    """How one side's sequences are packed.

    Attributes:
        tokens: rows of the packed tensor; at least the end of the last sequence.
        gaps: sequences start where separate ``cu_seqlens_padded`` say.
    """

    tokens: int
    gaps: bool = False


def packed_spec(
    shape: Shape,
    strides: Strides,
    dtype: DType,
    *,
    batch: int,
    max_tokens: int,
    alignment: int = 16,
) -> TensorSpec:
    """``[tokens, heads, head_dim]`` as ``[batch, heads, max_tokens, head_dim]``.

    The strides of heads and tokens are those of memory (``canonical_strides``); that of the batch
    only completes the description, because a ragged offset says where each sequence starts. The
    stride of a single head comes from its row: the number of tokens must not enter a plan's key.
    """
    _, heads, head_dim = shape
    row = canonical_strides(shape[1:], strides[1:])
    per_token, _, _ = canonical_strides(shape, (strides[0], *row))
    per_head, per_element = row
    return TensorSpec(
        (batch, heads, max_tokens, head_dim),
        (max_tokens * per_token, per_head, per_token, per_element),
        dtype,
        alignment,
    )


def packed_like(spec: TensorSpec, shape: Shape) -> TensorSpec:
    """A dense packed tensor ``[tokens, heads, head_dim]``, described as ``shape``."""
    batch, heads, max_tokens, head_dim = shape
    row = (heads * head_dim, head_dim, 1)
    described = (0, heads, head_dim)
    return packed_spec(described, row, spec.dtype, batch=batch, max_tokens=max_tokens)


def batch_bucket(batch: int) -> int:
    """32; up to 512 the next power of two; then the next multiple of 512.

    >>> [batch_bucket(n) for n in (1, 32, 33, 512, 513)]
    [32, 32, 64, 512, 1024]
    """
    return _rounded_up(batch, smallest=32, largest=512)


def token_bucket(tokens: int) -> int:
    """1024; up to 32768 the next power of two; then the next multiple of 32768. 0 stays 0.

    >>> [token_bucket(n) for n in (0, 1, 1024, 1025, 32768, 32769)]
    [0, 1024, 1024, 2048, 32768, 65536]
    """
    return _rounded_up(tokens, smallest=1024, largest=32768) if tokens else 0


def _rounded_up(count: int, *, smallest: int, largest: int) -> int:
    if count > largest:
        return -(-count // largest) * largest
    return max(smallest, 1 << (count - 1).bit_length() if count else 0)


def has_buckets(device: DeviceSpec) -> bool:
    """Whether plans for packed sequences declare buckets, and packed statistics, on a device.

    Not before cuDNN 9.6, not below compute capability 9.0, and not on 12.x, whose kernels take
    the batch stride for the distance between sequences (TransformerEngine issue 3333).
    """
    known = device.cudnn_version is None or device.cudnn_version >= _BUCKETS_SINCE
    return known and device.sm >= 90 and device.sm // 10 != 12
