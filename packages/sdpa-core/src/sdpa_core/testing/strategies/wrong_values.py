"""What is wrong in a call: one value, or two that do not go together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...dtypes import DType
from .right_calls import BF16, I32, dense

_NAN, _INF = float("nan"), float("inf")

#: Values of an argument of which each is wrong in all functions that have it.
WRONG: Mapping[str, Sequence[Any]] = {
    "dropout_p": (1.0, 1, -0.25, _NAN, _INF, "0.5", None),
    "is_causal": ("no", 2, None, 0.5),
    "causal_alignment": ("middle", "", None, 1),
    "window": ((1, 2, 3), (), (-1, 0), (0, -1), (1.5, 0), ("1", 0), "12"),
    "scale": (_NAN, _INF, -_INF, 1e39, 10**400, "1", True),
    "softmax": ("plain", "", None, 1),
    "sink": (dense(3), dense(4, 1), dense(2, 4), dense(4, dtype=I32), 0.5),
    "softcap": (0, 0.0, -1.0, _NAN, _INF, "30", True),
    "alibi": ("yes", 0.5, None, dense(3), dense(3, 4), dense(4, 2), dense(4, dtype=I32)),
    "return_lse": ("yes", None, 2),
    "return_max_logit": ("yes", None, 2),
    "deterministic": ("yes", 2, 0.5),
    "backend": ("nonsense", "", 1),
    "attn_mask": (
        dense(6, 8),
        dense(5, 9),
        dense(3, 1, 6, 9),
        dense(1, 2, 6, 9),
        dense(1, 1, 1, 1, 6, 9),
        dense(6, 9, dtype=BF16),
        dense(6, 9, dtype=I32),
        1.0,
    ),
    "seq_lens_q": (dense(3, dtype=I32), dense(2, 1, dtype=I32), dense(2)),
    "seq_lens_kv": (
        dense(1, dtype=I32),
        dense(2, 2, dtype=I32),
        dense(2),
        dense(2, dtype=DType.BOOL),
    ),
    "cu_seq_q": (dense(3, 1, dtype=I32), dense(3), [0, 6]),
    "cu_seq_k": (dense(0, dtype=I32), dense(3), (0, 9, 18)),
    "max_q": (-1, 1.5, "6", None, True),
    "max_k": (-9, 0.5, "9", None, False),
    "page_table": (dense(2, 3), dense(2, dtype=I32), dense(3, 3, dtype=I32), None),
    "value_page_table": (dense(2, 4, dtype=I32), dense(2, 3), dense(1, 3, dtype=I32)),
    "query": (dense(8), dense(), None, 1.0),
    "key": (dense(8), None, "key"),
    "value": (dense(16), None, 3),
    "key_pages": (dense(7, 3, 8), dense(7, 3, 3, 8), dense(7, 3, 2, 4), None),
    "value_pages": (dense(7, 3, 16), dense(7, 3, 1, 16), dense(7, 4, 2, 16), None),
}

#: Pairs that are wrong together: what is changed, and which names may be blamed.
CONTRADICTIONS: Sequence[tuple[tuple[str, ...], dict[str, Any], tuple[str, ...]]] = (
    (("dense", "varlen", "paged"), {"softmax": "off_by_one", "sink": dense(4)}, ("sink",)),
    (("dense", "varlen", "paged"), {"softmax": "learnable"}, ("sink",)),
    (("varlen", "paged"), {"is_causal": True, "window": (2, 3)}, ("window", "is_causal")),
    (("dense",), {"key": dense(3, 2, 9, 8), "value": dense(3, 2, 9, 16)}, ("key", "query")),
    (("dense",), {"key": dense(2, 2, 8, 8)}, ("key", "value")),
    (("dense",), {"key": dense(2, 2, 9, 4)}, ("key", "query")),
    (("dense",), {"key": dense(2, 3, 9, 8), "value": dense(2, 3, 9, 16)}, ("key", "query")),
    (("dense",), {"value": dense(2, 4, 9, 16)}, ("key", "value")),
    (("dense",), {"key": dense(2, 2, 9, 8, dtype=BF16)}, ("key",)),
    (("dense",), {"value": dense(2, 2, 9, 16, dtype=DType.FLOAT16)}, ("value",)),
    (("dense",), {"query": dense(2, 4, 6, 8, dtype=I32)}, ("query",)),
    (("dense",), {"score_mod_args": (1.0,)}, ("score_mod",)),
    (("dense",), {"score_mod_bprop": abs}, ("score_mod",)),
    (("dense",), {"score_mod": 5}, ("score_mod",)),
    (("varlen",), {"query": dense(2, 4, 6, 8)}, ("query",)),
    (("varlen",), {"key": dense(18, 2, 4)}, ("key",)),
    (("varlen",), {"value": dense(17, 2, 16)}, ("value",)),
    (("varlen",), {"cu_seq_q": None}, ("cu_seq_q",)),
    (("varlen",), {"cu_seq_q": dense(4, dtype=I32)}, ("cu_seq_q", "cu_seq_k")),
    (("varlen",), {"cu_seq_k": dense(2, dtype=I32)}, ("cu_seq_q", "cu_seq_k")),
    (
        ("varlen",),
        {"cu_seq_q": None, "cu_seq_k": None, "max_q": None, "max_k": None},
        ("cu_seq_q",),
    ),
    (("varlen",), {"seq_lens_q": dense(2, dtype=I32)}, ("seq_lens_q",)),
    (("varlen",), {"cu_seq_q_padded": dense(4, dtype=I32)}, ("cu_seq_q_padded",)),
    (("paged",), {"max_q": 6}, ("max_q",)),
    (("paged",), {"query": dense(12, 4, 8)}, ("query",)),
    (("paged",), {"seq_lens_kv": None}, ("seq_lens_kv",)),
)
