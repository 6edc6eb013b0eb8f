"""What a call asks for besides shapes: the part of a problem that all frameworks' paths read."""

from __future__ import annotations

from dataclasses import dataclass

from sdpa_core import Band
from sdpa_core.logits import ScoreMod
from sdpa_core.mask import Alignment
from sdpa_core.problem import Softmax

OPERANDS = ("query", "key", "value")

_FULL = Band()


@dataclass(frozen=True)
class Features:
    """The tensors of a call by name, and what is done with them.

    Attributes:
        roles: names of the tensors, in the order of ``AttentionProblem.inputs``.
        band: which keys a query sees.
        alibi: subtract distances with the standard slopes.
        softmax: what else is in the denominator.
        softcap: bound of the logits.
        score_mod: a function of the logits.
        dropout_p: probability that a probability is dropped.
        max_q, max_kv: tokens of the longest sequence of a packed side; None: the side is dense.
        return_max_logit: the largest visible logit of each head is wanted.
        slack_is_finite: the caller promises that rows past a sequence's end hold no NaN and no
            infinity.
    """

    roles: tuple[str, ...] = OPERANDS
    band: Band = _FULL
    alibi: bool = False
    softmax: Softmax = Softmax.VANILLA
    softcap: float | None = None
    score_mod: ScoreMod | None = None
    dropout_p: float = 0.0
    max_q: int | None = None
    max_kv: int | None = None
    return_max_logit: bool = False
    slack_is_finite: bool = False

    def __hash__(self) -> int:
        """Made once: it is asked for in every call."""
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = hash(tuple(getattr(self, name) for name in self.__dataclass_fields__))
            object.__setattr__(self, "_hash", known)
        return known

    def has(self, role: str) -> bool:
        return role in self.roles

    @property
    def is_paged(self) -> bool:
        return "page_table_k" in self.roles

    @property
    def has_lengths(self) -> bool:
        """Whether a side's sequences have lengths of their own."""
        given = {"seq_lens_q", "seq_lens_kv", "cu_seqlens_q", "cu_seqlens_kv"}
        return not given.isdisjoint(self.roles)


#: Features of the calls that need no others, by band.
PLAIN = {
    band: Features(band=band)
    for alignment in Alignment
    for band in (Band(alignment=alignment), Band.causal(alignment))
}
