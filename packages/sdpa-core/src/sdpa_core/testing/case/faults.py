"""What does not go together in a description."""

from __future__ import annotations

from typing import get_args

from ...problem import Softmax
from ..score_mods import SCORE_MODS
from .description import Description
from .kinds import Layout


def faults_of(case: Description) -> list[str]:
    """Each fault as a sentence; none, if there is such a case."""
    alike = (
        (case.heads, case.tokens_q, case.head_dim, case.lengths_q, case.gaps_q),
        (case.heads_kv, case.tokens_kv, case.head_dim_v, case.lengths_kv, case.gaps_kv),
    )
    one_buffer = case.layout in {"packed_qkv", "qkv_h3d"}
    two_views = case.layout in {"kv_packed", "kv_h2d"}
    lengths = {
        "lengths_q": (case.lengths_q, case.tokens_q),
        "lengths_kv": (case.lengths_kv, case.tokens_kv),
    }
    found = {
        f"{case.layout} needs equal heads, tokens and head_dim": one_buffer
        and alike[0] != alike[1],
        f"{case.layout} needs both sides packed, or none": one_buffer
        and case.packed not in {None, "both"},
        f"{case.layout} needs equal head_dims": two_views and case.head_dim != case.head_dim_v,
        f"logits {case.logits} need a scale other than 0": case.scale == 0
        and case.logits in {"very_negative", "large_positive"},
        f"no layout {case.layout}": case.layout not in get_args(Layout),
        "packed queries need lengths": case.packs_q and case.lengths_q is None,
        "packed keys need lengths": case.packs_kv and case.lengths_kv is None,
        "gaps_q need packed queries": case.gaps_q is not None and not case.packs_q,
        "gaps_kv need packed keys": case.gaps_kv is not None and not case.packs_kv,
        "pages need lengths_kv": case.page_size is not None and case.lengths_kv is None,
        "pages are not packed": case.page_size is not None and case.packs_kv,
        "a sink needs softmax learnable": case.sink is not None
        and case.softmax is not Softmax.LEARNABLE,
        f"no score_mod {case.score_mod}": case.score_mod is not None
        and case.score_mod not in SCORE_MODS,
    }
    for name, (given, tokens) in lengths.items():
        fits = given is None or (len(given) == case.batch and all(0 <= n <= tokens for n in given))
        found[f"{name} are {given}; expected {case.batch} from 0 to {tokens}"] = not fits
    return [fault for fault, holds in found.items() if holds]
