"""What the oracle is given besides query, key and value."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...mask import Band
from ...problem import Softmax

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
