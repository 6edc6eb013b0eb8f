"""The steps of the computation, each a method: seams for faults."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...alibi import alibi_slopes
from ...mask import Alignment, Band
from ...problem import Softmax
from ..case import Case
from ..logits import Mask, visible_pairs
from ..philox_bits import keep_mask

#: Of float32.
Floats = NDArray[Any]


class Scaled(Protocol):
    """A call whose logits are scaled, ``[B, Hq, Sq, Skv]``, and not yet capped."""

    @property
    def case(self) -> Case: ...

    @property
    def scaled(self) -> Floats: ...


class Arithmetic:
    """What each step gives, of a case or of arrays in float32."""

    #: Of every call with dropout; above 2**31, where 32 bits would cut it.
    seed = 2**40 + 7

    def exists_q(self, case: Case) -> Mask:
        return case.exists_q()

    def exists_kv(self, case: Case) -> Mask:
        return case.exists_kv()

    def scale(self, case: Case) -> float:
        return case.effective_scale

    def band(self, case: Case) -> Band:
        return case.band

    def lengths(self, case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """By which bottom-right bands and ALiBi are aligned, and keys hidden."""
        full_q, full_kv = (case.tokens_q,) * case.batch, (case.tokens_kv,) * case.batch
        return case.lengths_q or full_q, case.lengths_kv or full_kv

    def visible(self, case: Case, mask: NDArray[Any] | None) -> Mask:
        shape = (case.batch, case.heads, case.tokens_q, case.tokens_kv)
        visible = np.zeros(shape, dtype=np.bool_)
        for b, (sq, skv) in enumerate(zip(*self.lengths(case), strict=True)):
            visible[b, :, :sq, :skv] = visible_pairs(self.band(case), sq, skv)
        return visible if mask is None else visible & (mask != 0)

    def softcapped(self, logits: Floats, cap: float) -> Floats:
        return np.float32(cap) * np.tanh(logits / np.float32(cap))

    def distances(self, case: Case) -> Floats:
        """``[B, 1, Sq, Skv]``: of ALiBi."""
        lengths_q, lengths_kv = (np.array(n) for n in self.lengths(case))
        shift = np.zeros(case.batch)
        if case.band.alignment is Alignment.BOTTOM_RIGHT:
            shift = lengths_kv - lengths_q
        i, j = np.arange(case.tokens_q)[:, None], np.arange(case.tokens_kv)
        return np.abs(i + shift[:, None, None, None] - j).astype(np.float32)

    def slopes(self, case: Case, given: NDArray[Any] | None) -> Floats:
        slopes = np.array(alibi_slopes(case.heads)) if given is None else given
        return slopes.reshape(-1, case.heads, 1, 1).astype(np.float32)

    def added(self, logits: Floats, bias: Floats) -> Floats:
        return logits + bias

    def sink(self, case: Case, given: NDArray[Any] | None) -> Floats | None:
        """``[1, Hq, 1, 1]``."""
        if case.softmax is Softmax.VANILLA:
            return None
        sink = np.zeros(case.heads) if given is None else given
        return sink.reshape(1, -1, 1, 1).astype(np.float32)

    def maximum(self, logits: Floats, sink: Floats | None) -> Floats:
        """Of each row, what is subtracted before the exponential."""
        largest = logits.max(axis=-1, keepdims=True, initial=-np.inf)
        if sink is not None:
            largest = np.maximum(largest, sink)
        return np.where(np.isneginf(largest), np.float32(0), largest)

    def keep(self, case: Case) -> Floats | None:
        """``[B, Hq, Sq, Skv]``: dropout's factors."""
        if case.dropout_p == 0:
            return None
        shape = (case.batch, case.heads, case.tokens_q, case.tokens_kv)
        keep = keep_mask(self.seed, 0, case.dropout_p, *shape)
        return keep / np.float32(1 - case.dropout_p)

    def divide(self, weights: Floats, total: Floats) -> Floats:
        return weights / np.where(total == 0, np.float32(1), total)

    def lse(self, lse: Floats) -> Floats:
        return lse

    def sum_group(self, gradient: Floats, case: Case) -> Floats:
        """Sum over the query heads that share a key head."""
        _, _, tokens, head_dim = gradient.shape
        group = case.heads // case.heads_kv
        shape = (case.batch, case.heads_kv, group, tokens, head_dim)
        total: Floats = gradient.reshape(shape).sum(2)
        return total

    def sum_bias(self, gradient: Floats, shape: tuple[int, ...]) -> Floats:
        """Sum over the axes along which the bias is repeated."""
        axes = tuple(axis for axis, n in enumerate(shape) if n == 1 and gradient.shape[axis] != 1)
        total: Floats = gradient.sum(axis=axes, keepdims=True)
        return total

    def softcap_slope(self, call: Scaled) -> Floats:
        cap = np.float32(call.case.softcap or 1)
        return 1 - np.tanh(call.scaled / cap) ** 2

    def scale_of_grad_key(self, case: Case) -> float:
        return self.scale(case)
