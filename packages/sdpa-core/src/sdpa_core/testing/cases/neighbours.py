"""Pairs of cases that differ in one thing, to run one after the other in one process.

Whatever an implementation keeps between calls (plans, traces, buffers), the first of a pair must
give the same bits again after the second (R24, R26, R112).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...mask import Alignment, Band
from ...problem import Softmax
from ..case import Case
from .small import BF16, F16, F32, small

_BR = Alignment.BOTTOM_RIGHT
_SINK = Softmax.LEARNABLE

_PLAIN = small("plain", dtype=BF16)
_BIASED = small("biased", bias="1hss")
_SHORT = small("short", lengths_kv=(30, 11))
_SUNK = small("sunk", softmax=_SINK)
_CAPPED = small("capped", softcap=15.0)
_MODIFIED = small("modified", score_mod="temperature")
_SLOPED = small("sloped", alibi="head")
_IN_WINDOW = small("in_window", band=Band(5, 0))
_PACKED = small(
    "together", packed="both", lengths_q=(12, 20), lengths_kv=(36, 9), gaps_q=(0, 0), gaps_kv=(0, 0)
)
_PAGED = small("in_pages", tokens_q=1, page_size=8, lengths_kv=(36, 20))


def _changed(case: Case, name: str, **fields: Any) -> tuple[Case, Case]:
    return case, replace(case, name=f"{case.name}_{name}", **fields)


NEIGHBOURS = (
    _changed(_PLAIN, "bshd", layout="bshd"),
    _changed(_PLAIN, "interleaved", layout="kv_packed", reports=("R24",)),
    _changed(_PLAIN, "float16", dtype=F16, reports=("R26",)),
    _changed(_PLAIN, "float32", dtype=F32),
    _changed(_PLAIN, "scale", scale=0.5),
    _changed(_PLAIN, "negative_scale", scale=-0.5),
    _changed(_PLAIN, "batch", batch=3),
    _changed(_PLAIN, "heads_kv", heads_kv=4),
    _changed(_PLAIN, "tokens_kv", tokens_kv=35),
    _changed(_PLAIN, "head_dim_v", head_dim_v=16),
    _changed(_PLAIN, "causal", band=Band.causal()),
    _changed(_PLAIN, "bias", bias="1hss"),
    _changed(_PLAIN, "lengths", lengths_kv=(30, 11)),
    _changed(_PLAIN, "sink", softmax=_SINK),
    _changed(_PLAIN, "off_by_one", softmax=Softmax.OFF_BY_ONE),
    _changed(_PLAIN, "data", seed=1),
    _changed(_IN_WINDOW, "left", band=Band(6, 0)),
    _changed(_IN_WINDOW, "right", band=Band(5, 1)),
    _changed(_IN_WINDOW, "alignment", band=Band(5, 0, _BR)),
    _changed(_BIASED, "axes", bias="bhss"),
    _changed(_BIASED, "dtype", bias_dtype=F32),
    _changed(_BIASED, "frozen", bias_grad=False),
    _changed(_SHORT, "longer", lengths_kv=(31, 11)),
    _changed(_SHORT, "both", lengths_q=(20, 20)),
    _changed(_SUNK, "off_by_one", softmax=Softmax.OFF_BY_ONE),
    _changed(_CAPPED, "50", softcap=50.0, reports=("R112",)),
    _changed(_MODIFIED, "other", score_mod="tanh_cap"),
    _changed(_MODIFIED, "softcap", softcap=15.0),
    _changed(_SLOPED, "each_sequence", alibi="batch_head"),
    _changed(_SLOPED, "standard", alibi="standard"),
    _changed(_PACKED, "lengths", lengths_q=(20, 12)),
    _changed(_PACKED, "touching", gaps_q=None, gaps_kv=None),
    _changed(_PACKED, "gaps", gaps_q=(3, 0)),
    _changed(_PACKED, "one_side", packed="q", gaps_kv=None),
    _changed(_PACKED, "interleaved", layout="kv_packed"),
    _changed(_PAGED, "size", page_size=16),
    _changed(_PAGED, "value_table", own_value_table=True),
)
