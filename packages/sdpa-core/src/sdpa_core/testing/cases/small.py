"""The size of most cases: few tokens, unlike numbers of everything."""

from __future__ import annotations

from typing import Any

from ...dtypes import DType
from ..case import Case

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32


def small(name: str, **fields: Any) -> Case:
    """Two sequences, four heads on two, 20 queries and 36 keys, unless ``fields`` say otherwise."""
    usual = {
        "heads": 4,
        "heads_kv": 2,
        "tokens_q": 20,
        "tokens_kv": 36,
        "head_dim": 32,
        "head_dim_v": 32,
    }
    return Case(name, **{**usual, **fields})


def self_attention(name: str, **fields: Any) -> Case:
    """As ``small``, with 36 queries too."""
    return small(name, **{"tokens_q": 36, **fields})
