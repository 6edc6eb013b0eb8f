"""Further layouts of dense operands."""

from __future__ import annotations

from ...mask import Band
from .small import F16, F32, self_attention, small

_CAUSAL = Band.causal()

LAYOUTS = (
    small("sbhd", layout="sbhd"),
    small("sbhd_float32", layout="sbhd", dtype=F32),
    self_attention("sbhd_causal_float16", layout="sbhd", band=_CAUSAL, dtype=F16),
    small("kv_packed", layout="kv_packed", reports=("R24",)),
    small("kv_packed_float32", layout="kv_packed", dtype=F32),
    small("kv_packed_decode", layout="kv_packed", tokens_q=1, reports=("R20",)),
    small("kv_h2d", layout="kv_h2d", dtype=F16),
    self_attention("qkv_h3d", layout="qkv_h3d", heads_kv=4),
    self_attention("qkv_h3d_causal_float32", layout="qkv_h3d", heads_kv=4, band=_CAUSAL, dtype=F32),
    small("odd_rows", layout="odd_rows", reports=("R18",)),
    small("odd_rows_float32", layout="odd_rows", dtype=F32),
)
