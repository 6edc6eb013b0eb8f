"""A call put together: its tensors by role, its numbers, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sdpa_core import Band, positive_scale
from sdpa_core.problem import Softmax

from .arguments.logits import UNMODIFIED, Modified
from .arguments.operands import times
from .features import Features
from .specs import Options


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


def as_trained(options: Options, training: bool | None) -> Options:
    """The options with ``training`` as the caller of ``explain`` says; None: as they are."""
    if training is None:
        return options
    features, _, return_lse, deterministic, gradients = options
    return features, training, return_lse, deterministic, gradients if training else ()
