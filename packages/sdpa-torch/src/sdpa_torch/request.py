"""A call put together: its tensors by role, its numbers, and what it asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sdpa_core import Band, flag, positive_scale
from sdpa_core.problem import Softmax

from . import rng
from .arguments import logits, masks, numbers
from .arguments.logits import UNMODIFIED, Modified
from .arguments.operands import times
from .features import Features
from .specs import Options

#: The order of ``AttentionProblem.inputs`` after query, key and value; auxiliary tensors of
#: ``score_mod`` follow.
_ORDER = (
    *("bias", "alibi_slopes", "sink", "seq_lens_q", "seq_lens_kv"),
    *("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded"),
    *("page_table_k", "page_table_v", "dropout_seed", "dropout_offset"),
)


@dataclass
class Request:
    """The parts of a call, checked.

    Attributes:
        query, key, value: rank 4; packed sides rank 3; pages as pools ``[pages, Hkv, page, D]``.
        scale: factor of the logits, as the caller means it.
        others: the further tensors by role, in the order of ``AttentionProblem.inputs``; None for
            those that are not there.
        band, alibi, softmax, softcap, dropout_p, max_q, max_kv: see ``Features``.
        modified: the traced ``score_mod``.
        return_lse, return_max_logit, deterministic, slack_is_finite: what the caller wants.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    others: dict[str, Tensor | None]
    band: Band
    alibi: bool
    softmax: Softmax
    softcap: float | None
    dropout_p: float
    return_lse: bool
    return_max_logit: bool
    deterministic: bool
    slack_is_finite: bool
    modified: Modified = UNMODIFIED
    max_q: int | None = None
    max_kv: int | None = None

    def call(self) -> tuple[tuple[Tensor, ...], tuple[float, ...], Options]:
        """Tensors, scalars and options, as ``attend`` takes them."""
        factor, scale = positive_scale(self.scale)
        query = times(self.query, factor)
        named = {"query": query, "key": self.key, "value": self.value}
        named |= {role: tensor for role, tensor in self.others.items() if tensor is not None}
        for number, tensor in enumerate(self.modified.tensors):
            named[f"score_mod_{number}"] = tensor
        features = Features(
            roles=tuple(named),
            band=self.band,
            alibi=self.alibi,
            softmax=self.softmax,
            softcap=self.softcap,
            score_mod=self.modified.score_mod,
            dropout_p=self.dropout_p,
            max_q=self.max_q,
            max_kv=self.max_kv,
            return_max_logit=self.return_max_logit,
            slack_is_finite=self.slack_is_finite,
        )
        enabled = torch.is_grad_enabled()
        wanted = {role for role, tensor in named.items() if enabled and tensor.requires_grad}
        gradients = tuple(role for role in ("bias", "sink") if role in wanted)
        options = (features, bool(wanted), self.return_lse, self.deterministic, gradients)
        return tuple(named.values()), (scale, *self.modified.numbers), options


def requested(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    further: Mapping[str, Tensor | None],
    *,
    batch: int,
    is_causal: Any,
    causal_alignment: Any,
    window: Any,
    scale: Any,
    softmax: Any,
    sink: Any,
    softcap: Any,
    alibi: Any,
    return_lse: Any,
    return_max_logit: Any,
    deterministic: Any,
    slack_is_finite: Any,
    dropout_p: Any = 0.0,
    draw: Callable[[torch.device], tuple[Tensor, Tensor]] = rng.draw,
    modified: Modified = UNMODIFIED,
    max_q: int | None = None,
    max_kv: int | None = None,
) -> Request:
    """The request of these operands with the arguments that all public functions take.

    Args:
        query, key, value: as ``Request`` has them, checked.
        further: other operands by role, checked; None for those that are not there.
        batch: number of sequences.
        draw: gives dropout's seed and offset.
        modified, max_q, max_kv: as ``Request`` has them.
        is_causal, causal_alignment, window, scale, softmax, sink, softcap, alibi, return_lse,
            return_max_logit, deterministic, slack_is_finite, dropout_p: as callers give them.

    Raises:
        TypeError, ValueError: an argument is wrong.
    """
    standard, slopes = masks.slopes_of(alibi, query, batch)
    kind, sink = logits.softmax_of(softmax, sink, query)
    request = Request(
        query,
        key,
        value,
        numbers.scale_of(scale, query.shape[-1]),
        {},
        band=masks.band_of(is_causal, causal_alignment, window),
        alibi=standard,
        softmax=kind,
        softcap=numbers.softcap_of(softcap),
        dropout_p=numbers.dropout_of(dropout_p),
        return_lse=flag("return_lse", return_lse),
        return_max_logit=flag("return_max_logit", return_max_logit),
        deterministic=numbers.is_deterministic(deterministic),
        slack_is_finite=flag("slack_is_finite", slack_is_finite),
        modified=modified,
        max_q=max_q,
        max_kv=max_kv,
    )
    # Last, so that a refused call leaves the generator alone.
    seed, offset = draw(query.device) if request.dropout_p else (None, None)
    found = {**further, "alibi_slopes": slopes, "sink": sink}
    found |= {"dropout_seed": seed, "dropout_offset": offset}
    request.others = {role: found.get(role) for role in _ORDER}
    return request


def as_trained(options: Options, training: bool | None) -> Options:
    """The options with ``training`` as the caller of ``explain`` says; None: as they are."""
    if training is None:
        return options
    features, _, return_lse, deterministic, gradients = options
    return features, training, return_lse, deterministic, gradients if training else ()
