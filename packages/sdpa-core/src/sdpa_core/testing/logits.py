"""What the oracle attends with besides query, key and value; and the logits of one head.

Everything here is about one query head of one sequence, with the rows that the sequence has: what
lies past its length is cut off before anything is computed, so that it cannot matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..mask import Alignment, Band
from ..problem import Softmax
from ..validate import default_scale

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class At(NamedTuple):
    """Where a head's logits lie among all of them: ``batch``, ``head``, and their positions.

    Attributes:
        batch, head: numbers of the sequence and of the query head.
        i: ``[Sq, 1]``, numbers of the queries.
        j: ``[1, Skv]``, numbers of the keys.
    """

    batch: int
    head: int
    i: NDArray[np.int64]
    j: NDArray[np.int64]


class Function(Protocol):
    """A function of the scaled logits, element by element."""

    def value(self, score: Array, at: At) -> Array:
        """``f(score)``, ``[Sq, Skv]``; -inf hides."""
        ...

    def pull_back(self, gradient: Array, score: Array, at: At) -> Array:
        """The gradient of ``score`` from that of ``f(score)``."""
        ...


class Dropout(NamedTuple):
    """Which probabilities are kept.

    Attributes:
        keep: boolean ``[B, Hq, Sq, Skv]``.
        p: probability of dropping; those kept are divided by ``1 - p``.
    """

    keep: Mask
    p: float


class Features(TypedDict, total=False):
    """Keyword arguments of ``attention``, ``attention_backward`` and ``error_scales``.

    With ``shift`` the band's (0, or the number of keys less that of queries of the sequence)::

        S = scale * q.k                      then softcap * tanh(S / softcap), then score_mod(S)
        S = S + bias - slope * |i + shift - j|

    Attributes:
        band: which keys a query sees; None: all.
        scale: factor of the logits; None: ``1 / sqrt(D)``.
        bias: ``[1 or B, 1 or Hq, 1 or Sq, 1 or Skv]``, added; -inf hides.
        mask: boolean of the same shapes; False hides.
        alibi_slopes: ``[Hq]`` or ``[1 or B, Hq, 1, 1]``.
        softmax: what else is in the denominator.
        sink: ``[Hq]``, the logit of the sink; with ``Softmax.LEARNABLE`` alone.
        softcap: bound of the logits.
        score_mod: a function of the logits.
        dropout: which probabilities are kept.
        lengths_q, lengths_kv: ``[B]`` in tokens; None: all sequences are full.
    """

    band: Band | None
    scale: float | None
    bias: ArrayLike | None
    mask: ArrayLike | None
    alibi_slopes: ArrayLike | None
    softmax: Softmax
    sink: ArrayLike | None
    softcap: float | None
    score_mod: Function | None
    dropout: Dropout | None
    lengths_q: ArrayLike | None
    lengths_kv: ArrayLike | None


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
            bias=_spread("bias", given.get("bias"), (batch, heads, sq, skv)),
            mask=_visible_by_mask(given.get("mask"), (batch, heads, sq, skv)),
            slopes=_slopes(given.get("alibi_slopes"), batch, heads),
            sink=_sink(given, heads),
            softcap=softcap,
            function=given.get("score_mod"),
            dropout=given.get("dropout"),
            lengths_q=_lengths("lengths_q", given.get("lengths_q"), batch, sq),
            lengths_kv=_lengths("lengths_kv", given.get("lengths_kv"), batch, skv),
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


@dataclass(frozen=True)
class Logits:
    """The logits of one head, and the way back from them.

    Attributes:
        scaled: ``scale * q.k``, ``[Sq, Skv]``.
        capped: after softcap.
        final: after all; -inf where hidden.
        visible: where not hidden.
    """

    scaled: Array
    capped: Array
    final: Array
    visible: Mask

    @classmethod
    def of(cls, head: Head, call: Attended) -> Logits:
        scaled = call.scale * (head.q @ head.k.T)
        cap = call.softcap
        capped = scaled if cap is None else cap * np.tanh(scaled / cap)
        changed = capped if call.function is None else call.function.value(capped, head.at)
        visible = head.visible & ~np.isneginf(changed)
        final = np.where(visible, changed + np.where(head.visible, head.added, 0.0), -np.inf)
        return cls(scaled, capped, final, visible)

    def pull_back(self, d_final: Array, head: Head, call: Attended) -> Array:
        """The gradient of ``scaled`` from that of ``final``."""
        d = d_final
        if call.function is not None:
            d = np.where(self.visible, call.function.pull_back(d, self.capped, head.at), 0.0)
        if call.softcap is not None:
            d = d * (1 - np.tanh(self.scaled / call.softcap) ** 2)
        return np.where(self.visible, d, 0.0)


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


def _spread(name: str, array: ArrayLike | None, shape: tuple[int, ...]) -> Array | None:
    if array is None:
        return None
    given = np.asarray(array, dtype=np.float64)
    try:
        return np.broadcast_to(given, shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {list(given.shape)}; expected one that broadcasts to {list(shape)}"
        ) from None


def _visible_by_mask(mask: ArrayLike | None, shape: tuple[int, ...]) -> Mask | None:
    spread = _spread("mask", mask, shape)
    return None if spread is None else spread != 0


def _slopes(slopes: ArrayLike | None, batch: int, heads: int) -> Array | None:
    if slopes is None:
        return None
    given = np.asarray(slopes, dtype=np.float64)
    flat = given[..., 0, 0] if given.ndim == 4 else given
    return _spread("alibi_slopes", flat, (batch, heads))


def _sink(given: Features, heads: int) -> Array | None:
    softmax, sink = given.get("softmax", Softmax.VANILLA), given.get("sink")
    if (sink is not None) != (softmax is Softmax.LEARNABLE):
        raise ValueError(f"sink goes with softmax={Softmax.LEARNABLE!s} alone, got {softmax!s}")
    if softmax is Softmax.OFF_BY_ONE:
        return np.zeros(heads)
    return _spread("sink", sink, (heads,))


def _lengths(name: str, given: ArrayLike | None, batch: int, tokens: int) -> tuple[int, ...]:
    if given is None:
        return (tokens,) * batch
    lengths = tuple(int(n) for n in np.asarray(given).reshape(-1))
    if len(lengths) != batch or not all(0 <= n <= tokens for n in lengths):
        raise ValueError(f"{name} is {lengths}; expected {batch} lengths from 0 to {tokens}")
    return lengths
