"""A call, checked and completed, and its query heads one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...mask import Alignment, Band
from ...validate import default_scale
from .completed import lengths_of, sinks_of, slopes_of, spread, visible_by_mask
from .features import Array, At, Dropout, Features, Function, Mask


@dataclass(frozen=True)
class Head:
    """One query head of one sequence, cut to the sequence's lengths, and where it lies.

    Attributes:
        at: its positions.
        query_at: index of ``[Sq, ...]`` in the query, the output and the log-sum-exp.
        key_at: index of ``[Skv, ...]`` in key and value; shared by the heads of a group.
        q, k, v: ``[Sq, D]``, ``[Skv, D]``, ``[Skv, Dv]``.
        visible: ``[Sq, Skv]``, what band and mask leave visible.
        added: ``[Sq, Skv]``, bias and ALiBi; 0 where there are none.
        sink: logit of the sink; None without one.
        kept: ``[Sq, Skv]``, factor of each probability by dropout; None without.
    """

    at: At
    query_at: tuple[int, int, slice]
    key_at: tuple[int, int, slice]
    q: Array
    k: Array
    v: Array
    visible: Mask
    added: Array
    sink: float | None
    kept: Array | None

    @property
    def pair_at(self) -> tuple[int, int, slice, slice]:
        """Index of its logits in ``[B, Hq, Sq, Skv]``."""
        return (*self.query_at, self.key_at[2])

    def with_dropout(self, p: Array) -> Array:
        """Probabilities, or their gradients, after dropout."""
        return p if self.kept is None else p * self.kept


@dataclass(frozen=True)
class Attended:
    """The operands and features of a call, checked and completed."""

    q: Array
    k: Array
    v: Array
    band: Band
    scale: float
    bias: Array | None
    mask: Mask | None
    slopes: Array | None
    sink: Array | None
    softcap: float | None
    function: Function | None
    dropout: Dropout | None
    lengths_q: tuple[int, ...]
    lengths_kv: tuple[int, ...]

    @classmethod
    def of(cls, q: Array, k: Array, v: Array, given: Features) -> Attended:
        batch, heads, sq, head_dim = q.shape
        skv = k.shape[2]
        scale, softcap = given.get("scale"), given.get("softcap")
        if softcap is not None and not 0 < softcap < np.inf:
            raise ValueError(f"softcap is {softcap}; expected a positive finite number")
        return cls(
            q,
            k,
            v,
            band=given.get("band") or Band(),
            scale=default_scale(head_dim) if scale is None else scale,
            bias=spread("bias", given.get("bias"), (batch, heads, sq, skv)),
            mask=visible_by_mask(given.get("mask"), (batch, heads, sq, skv)),
            slopes=slopes_of(given.get("alibi_slopes"), batch, heads),
            sink=sinks_of(given, heads),
            softcap=softcap,
            function=given.get("score_mod"),
            dropout=given.get("dropout"),
            lengths_q=lengths_of("lengths_q", given.get("lengths_q"), batch, sq),
            lengths_kv=lengths_of("lengths_kv", given.get("lengths_kv"), batch, skv),
        )

    def heads(self) -> Iterator[Head]:
        """Every query head of every sequence."""
        batch, count = self.q.shape[:2]
        for b in range(batch):
            for h in range(count):
                yield self._head(b, h)

    def _head(self, b: int, h: int) -> Head:
        sq, skv = self.lengths_q[b], self.lengths_kv[b]
        group = self.q.shape[1] // max(self.k.shape[1], 1)
        query_at, key_at = (b, h, slice(sq)), (b, h // group, slice(skv))
        pairs = (b, h, slice(sq), slice(skv))
        at = At(b, h, np.arange(sq)[:, None], np.arange(skv)[None, :])
        visible = visible_pairs(self.band, sq, skv)
        if self.mask is not None:
            visible &= self.mask[pairs]
        added = np.zeros((sq, skv))
        if self.bias is not None:
            added += self.bias[pairs]
            visible &= ~np.isneginf(added)
        if self.slopes is not None:
            shift = skv - sq if self.band.alignment is Alignment.BOTTOM_RIGHT else 0
            added = added - self.slopes[b, h] * np.abs(at.i + shift - at.j)
        sink = None if self.sink is None else float(self.sink[h])
        kept = None
        if self.dropout is not None:
            kept = self.dropout.keep[pairs] / (1 - self.dropout.p)
        q, k, v = self.q[query_at], self.k[key_at], self.v[key_at]
        return Head(at, query_at, key_at, q, k, v, visible, added, sink, kept)


def visible_pairs(band: Band, sq: int, skv: int) -> Mask:
    """Boolean ``[Sq, Skv]``: which key each query sees by the band."""
    shift = skv - sq if band.alignment is Alignment.BOTTOM_RIGHT else 0
    distance = np.arange(skv) - (np.arange(sq)[:, None] + shift)
    visible = np.ones((sq, skv), dtype=np.bool_)
    if band.left is not None:
        visible &= distance >= -band.left
    if band.right is not None:
        visible &= distance <= band.right
    return visible
