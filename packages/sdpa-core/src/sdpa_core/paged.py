"""Paged keys and values: pools of pages, and tables that say which page holds which tokens.

Token ``t`` of sequence ``b`` is row ``t % page_size`` of page ``page_table[b, t // page_size]``.
"""

from __future__ import annotations

from dataclasses import dataclass

from .reasons import Unsupported
from .tensor import TensorSpec

#: Why pages are not trained with.
INFERENCE_ONLY = Unsupported(
    "training",
    "a gradient of paged attention",
    "inference",
    "compute no gradient, or gather the pages and call varlen_attention",
)


@dataclass(frozen=True, slots=True)
class Paged:
    """Where the pages of each sequence are. Key and value are pools ``[pages, Hkv, page, D]``.

    Attributes:
        key_table, value_table: int32 ``[B, pages per sequence]``, with their real strides.
        tokens: the longest sequence that the tables can hold, at most
            ``pages per sequence * page size``.
    """

    key_table: TensorSpec
    value_table: TensorSpec
    tokens: int
