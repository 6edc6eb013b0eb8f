"""The operands as the blocks read them: dense, one sequence a row of the batch, slack cleared."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from sdpa_core import Band
from sdpa_core.alibi import alibi_slopes
from sdpa_core.mask import Alignment
from sdpa_core.problem import Softmax

from .. import sequences
from ..features import Features
from .exact import accumulation_type


class Operands(NamedTuple):
    """Dense operands.

    Attributes:
        query: ``[B, Hq, Sq, D]``; rows past a sequence's length are 0.
        key, value: ``[B, Hkv, Skv, D]`` and ``[B, Hkv, Skv, Dv]`` in the type of accumulation;
            likewise.
        scale: factor of the logits.
        features: what to do.
        bias: ``[1 or B, 1 or Hq, 1 or Sq, Skv]``.
        slopes: ``[1 or B, Hq, 1, 1]``, of ALiBi.
        sink: ``[1, Hq, 1, 1]``, a further logit of every row.
        seed, offset: of dropout.
        modifiers: auxiliary tensors of ``score_mod``.
        numbers: its scalars.
        lengths_q, lengths_kv: int64 ``[B]``; None: all sequences are full.
        side_q, side_kv: where packed sequences are; None: dense.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    features: Features
    bias: Tensor | None
    slopes: Tensor | None
    sink: Tensor | None
    seed: Tensor | None
    offset: Tensor | None
    modifiers: tuple[Tensor, ...]
    numbers: tuple[float, ...]
    lengths_q: Tensor | None
    lengths_kv: Tensor | None
    side_q: sequences.Side | None
    side_kv: sequences.Side | None

    @property
    def band(self) -> Band:
        return self.features.band

    @property
    def wide(self) -> torch.dtype:
        return self.key.dtype

    @property
    def shift(self) -> int | Tensor:
        """Of the diagonal: a number, or ``[B, 1, 1, 1]`` if sequences have their own."""
        if self.band.alignment is Alignment.TOP_LEFT:
            return 0
        tokens_q, tokens_kv = self.query.shape[2], self.key.shape[2]
        if self.lengths_q is None and self.lengths_kv is None:
            return tokens_kv - tokens_q
        ours = tokens_q if self.lengths_q is None else self.lengths_q
        theirs = tokens_kv if self.lengths_kv is None else self.lengths_kv
        return torch.as_tensor(theirs - ours).reshape(-1, 1, 1, 1)

    def rows(self, tensor: Tensor, fill: float = 0.0) -> Tensor:
        """A tensor with the query's tokens, dense, with ``fill`` past a sequence's length."""
        if self.side_q is not None:
            tensor = sequences.padded(tensor, self.side_q)
        return _within(tensor, self.lengths_q, fill)


def operands(
    tensors: tuple[Tensor, ...], scalars: tuple[float, ...], features: Features
) -> Operands:
    """The call's tensors, in the order of ``features.roles``, as the blocks read them."""
    named = dict(zip(features.roles, tensors, strict=True))
    query, key, value = tensors[:3]
    wide = accumulation_type(query)
    side_q = _side("q", named, features.max_q, query)
    side_kv = _side("kv", named, features.max_kv, key)
    lengths_q = _lengths(side_q, named.get("seq_lens_q"))
    lengths_kv = _lengths(side_kv, named.get("seq_lens_kv"))
    if side_q is not None:
        query = sequences.padded(query, side_q)
    if side_kv is not None:
        key, value = sequences.padded(key, side_kv), sequences.padded(value, side_kv)
    if features.is_paged:
        key = sequences.gathered(key, named["page_table_k"])
        value = sequences.gathered(value, named["page_table_v"])
    mod = features.score_mod
    return Operands(
        query=_within(query, lengths_q),
        key=_within(key, lengths_kv).to(wide),
        value=_within(value, lengths_kv).to(wide),
        scale=scalars[0],
        features=features,
        bias=named.get("bias"),
        slopes=_slopes(named, features, query, wide),
        sink=_sink(named, features, query, wide),
        seed=named.get("dropout_seed"),
        offset=named.get("dropout_offset"),
        modifiers=tensors[len(tensors) - len(mod.tensors) :] if mod else (),
        numbers=scalars[1:],
        lengths_q=lengths_q,
        lengths_kv=lengths_kv,
        side_q=side_q,
        side_kv=side_kv,
    )


def _side(
    side: str, named: dict[str, Tensor], longest: int | None, tensor: Tensor
) -> sequences.Side | None:
    if longest is None:
        return None
    gaps = named.get(f"cu_seqlens_{side}_padded")
    return sequences.Side.of(named[f"cu_seqlens_{side}"], gaps, longest, tensor.shape[0])


def _lengths(side: sequences.Side | None, given: Tensor | None) -> Tensor | None:
    if side is not None:
        return side.lengths.clamp(max=side.longest)
    return None if given is None else given.long()


def _within(tensor: Tensor, lengths: Tensor | None, fill: float = 0.0) -> Tensor:
    if lengths is None:
        return tensor
    return tensor.masked_fill(~sequences.rows_within(lengths, tensor.shape[2]), fill)


def _slopes(
    named: dict[str, Tensor], features: Features, query: Tensor, wide: torch.dtype
) -> Tensor | None:
    if features.alibi:
        slopes = torch.tensor(alibi_slopes(query.shape[1]), dtype=wide, device=query.device)
        return slopes.reshape(1, -1, 1, 1)
    given = named.get("alibi_slopes")
    return None if given is None else given.to(wide)


def _sink(
    named: dict[str, Tensor], features: Features, query: Tensor, wide: torch.dtype
) -> Tensor | None:
    if features.softmax is Softmax.OFF_BY_ONE:
        return torch.zeros(1, query.shape[1], 1, 1, dtype=wide, device=query.device)
    given = named.get("sink")
    return None if given is None else given.to(wide).reshape(1, -1, 1, 1)
