"""A right call of each public function, whose arrays are zeros and given as specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...dtypes import DType
from ...tensor import TensorSpec

F32, BF16, I32 = DType.FLOAT32, DType.BFLOAT16, DType.INT32

#: Two sequences of 6 queries and 9 keys, 4 heads, 2 of the keys, head dims 8 and 16.
_COMMON: dict[str, Any] = {
    "is_causal": False,
    "causal_alignment": "top_left",
    "window": None,
    "scale": None,
    "softmax": "vanilla",
    "sink": None,
    "softcap": None,
    "alibi": False,
    "return_lse": False,
    "return_max_logit": False,
    "deterministic": None,
    "backend": "reference",
}


def dense(*shape: int, dtype: DType = F32) -> TensorSpec:
    """A row-major array."""
    return TensorSpec.dense(shape, dtype)


RIGHT_CALLS: Mapping[str, Mapping[str, Any]] = {
    "dense": {
        "query": dense(2, 4, 6, 8),
        "key": dense(2, 2, 9, 8),
        "value": dense(2, 2, 9, 16),
        "attn_mask": None,
        "dropout_p": 0.0,
        "seq_lens_q": None,
        "seq_lens_kv": None,
        **_COMMON,
    },
    "varlen": {
        "query": dense(12, 4, 8),
        "key": dense(18, 2, 8),
        "value": dense(18, 2, 16),
        "cu_seq_q": dense(3, dtype=I32),
        "cu_seq_k": dense(3, dtype=I32),
        "max_q": 6,
        "max_k": 9,
        "dropout_p": 0.0,
        **_COMMON,
    },
    "paged": {
        "query": dense(2, 4, 6, 8),
        "key_pages": dense(7, 3, 2, 8),
        "value_pages": dense(7, 3, 2, 16),
        "page_table": dense(2, 3, dtype=I32),
        "seq_lens_kv": dense(2, dtype=I32),
        **_COMMON,
    },
}
