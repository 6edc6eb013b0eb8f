"""Functions of the logits: softcap and score_mod."""

from __future__ import annotations

from dataclasses import replace

from ...mask import Alignment, Band
from ...problem import Softmax
from ..case import Case
from ..score_mods import AS_USED, OPERATIONS
from .small import F16, F32, self_attention, small

_CAUSAL, _CAUSAL_BR = Band.causal(), Band.causal(Alignment.BOTTOM_RIGHT)

#: Logits up to 3, of which a cap of 1 leaves little.
SOFTCAPS = (
    small("softcap", softcap=1.0),
    small("softcap_float32", softcap=1.0, dtype=F32, reports=("R112",)),
    small("softcap_float16_bshd", softcap=2.0, dtype=F16, layout="bshd"),
    small("softcap_15", softcap=15.0, dtype=F32, reports=("R112",)),
    small("softcap_50", softcap=50.0, dtype=F32, reports=("R112",)),
    self_attention("softcap_causal", softcap=1.0, band=_CAUSAL, dtype=F32),
    small("softcap_causal_br", softcap=1.0, band=_CAUSAL_BR, dtype=F32),
    self_attention("softcap_window", softcap=1.0, band=Band(7, 0), dtype=F32),
    small("softcap_large_logits", softcap=30.0, logits="large_positive", dtype=F32),
    small("softcap_negative_lse", softcap=300.0, logits="very_negative", dtype=F32),
    small("softcap_lengths", softcap=1.0, lengths_q=(20, 7), lengths_kv=(11, 30), dtype=F32),
    small("softcap_no_keys", softcap=1.0, lengths_kv=(0, 30), dtype=F32),
    small("softcap_bias", softcap=1.0, bias="1hss", bias_grad=False, dtype=F32),
    small("softcap_bias_grad", softcap=1.0, bias="1hss", dtype=F32),
    small("softcap_bias_grad_rows", softcap=1.0, bias="b1s1", dtype=F32),
    small("softcap_bias_grad_all", softcap=1.0, bias="bhss", dtype=F32, band=_CAUSAL_BR),
    small("softcap_mask", softcap=1.0, mask="b1ss", dtype=F32),
    small("softcap_alibi", softcap=1.0, alibi="standard", band=_CAUSAL_BR, dtype=F32),
    small("softcap_sink", softcap=1.0, softmax=Softmax.LEARNABLE, dtype=F32),
    small("softcap_decode", softcap=1.0, tokens_q=1, dtype=F32),
    small("softcap_scale", softcap=1.0, scale=-0.3, dtype=F32),
)


def _every() -> tuple[Case, ...]:
    return tuple(small(f"score_mod_{name}", score_mod=name, dtype=F32) for name in AS_USED)


def _operations() -> tuple[Case, ...]:
    """Every operation, its derivative included."""
    return tuple(small(f"operation_{name}", score_mod=name, dtype=F32) for name in OPERATIONS)


_16_BITS = ("causal", "bias", "temperature")

SCORE_MOD_CASES = (
    *_every(),
    *_operations(),
    *(small(f"score_mod_{name}_float16", score_mod=name, dtype=F16) for name in _16_BITS),
    small("score_mod_bfloat16_bshd", score_mod="bias", layout="bshd"),
    self_attention("score_mod_with_causal", score_mod="relative_position", band=_CAUSAL, dtype=F32),
    small("score_mod_with_causal_br", score_mod="tanh_cap", band=_CAUSAL_BR, dtype=F32),
    small("score_mod_with_window", score_mod="bias", band=Band(6, 2), dtype=F32),
    small("score_mod_with_softcap", score_mod="temperature", softcap=2.0, dtype=F32),
    small("score_mod_with_bias", score_mod="temperature", bias="1hss", bias_grad=False, dtype=F32),
    small("score_mod_with_bias_grad", score_mod="tanh_cap", bias="11ss", dtype=F32),
    small("score_mod_with_mask", score_mod="tanh_cap", mask="b1ss", dtype=F32),
    small("score_mod_with_alibi", score_mod="tanh_cap", alibi="head", dtype=F32),
    small(
        "score_mod_with_lengths",
        score_mod="bias",
        lengths_q=(20, 7),
        lengths_kv=(11, 30),
        dtype=F32,
    ),
    small("score_mod_causal_no_keys", score_mod="causal", lengths_kv=(0, 30), dtype=F32),
    small("score_mod_with_sink", score_mod="causal", softmax=Softmax.LEARNABLE, dtype=F32),
    small("score_mod_decode", score_mod="bias_of_keys", tokens_q=1, dtype=F32),
    small(
        "score_mod_negative_lse", score_mod="relative_position", logits="very_negative", dtype=F32
    ),
    # Documents that hide everything but their own tokens (R42).
    replace(
        self_attention("score_mod_documents_causal", score_mod="documents", dtype=F32),
        band=_CAUSAL,
        reports=("R42",),
    ),
)
