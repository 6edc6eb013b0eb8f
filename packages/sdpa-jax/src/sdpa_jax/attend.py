"""What the public functions share: from checked arguments to a call, and its results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from sdpa_core import Band, default_scale, flag, positive_scale

from . import manual, vjp
from .arguments import bias, scalars, softmax
from .arguments.score_mod import Function
from .call import Call
from .convert import Operands
from .dispatch import Selection

#: The order of ``AttentionProblem.inputs``; auxiliary tensors of ``score_mod`` follow.
_ORDER = (
    *("query", "key", "value", "bias", "alibi_slopes", "sink", "seq_lens_q", "seq_lens_kv"),
    *("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded"),
    *("page_table_k", "page_table_v", "dropout_seed", "dropout_offset"),
)


class Results(NamedTuple):
    """What a call gave, as ``calls`` describes it; None for what was not asked for.

    Attributes:
        output: in the query's layout.
        lse: ``[B, N, T]``, packed ``[T, N]``.
        max_logit: ``[N]``, of the log-sum-exp's type.
    """

    output: Array
    lse: Array | None
    max_logit: Array | None

    def asked(self) -> Array | tuple[Array, ...]:
        """The output, or a tuple of it and what else there is."""
        further = [x for x in (self.lse, self.max_logit) if x is not None]
        return (self.output, *further) if further else self.output


@dataclass(frozen=True)
class Prepared:
    """A call that may be made.

    Attributes:
        call: what to compute.
        operands: in the order of its roles.
    """

    call: Call
    operands: tuple[Array, ...]

    def run(self) -> Results:
        """Make the call. What is not the output has no gradient, and says so."""
        found = vjp.attention(self.call, *manual.vary_alike(self.operands))
        results = dict(zip(self.call.results, found, strict=True))
        lse, largest = results.get("stats"), results.get("max_logit")
        if lse is not None:
            lse = vjp.not_differentiable("the log-sum-exp", lse)
        if largest is not None:
            largest = largest.max(0, initial=-jnp.inf)
            largest = vjp.not_differentiable("the largest logit (return_max_logit)", largest)
        return Results(results["output"], lse, largest)


def prepared(
    operands: Operands,
    further: Mapping[str, Array | None],
    *,
    batch: int,
    band: Band,
    scale: object,
    softmax_kind: object,
    sink: object,
    softcap: object,
    alibi: object,
    dropout_rate: object = 0.0,
    dropout_key: Any = None,
    function: Function | None = None,
    return_lse: bool,
    return_max_logit: object,
    deterministic: object,
    slack_is_finite: object,
    implementation: str | None,
    longest_q: int = 0,
    longest_kv: int = 0,
) -> Prepared:
    """The call of these operands with the arguments that all public functions take.

    Args:
        operands: query, key and value as ``calls`` describes them, checked.
        further: other operands by role, checked; None for those that are not there.
        batch: number of sequences.
        band: which keys a query sees.
        function: of the logits.
        longest_q, longest_kv: of packed sides.
        scale, softmax_kind, sink, softcap, alibi, dropout_rate, dropout_key, return_lse,
            return_max_logit, deterministic, slack_is_finite, implementation: as callers give them.

    Raises:
        TypeError, ValueError: an argument is wrong.
    """
    heads, head_dim = operands.query.shape[-2:]
    given = default_scale(head_dim) if scale is None else scalars.number("scale", scale)
    factor, positive = positive_scale(given)
    if factor != 1.0:
        operands = operands._replace(query=operands.query * factor)
    kind, sinks = softmax.softmax(softmax_kind, sink, operands.query)
    standard, slopes = bias.alibi(alibi, batch, heads)
    dropout_p, seeds = softmax.dropout(dropout_rate, dropout_key)
    function = function or Function()
    found = operands._asdict() | dict(further) | seeds
    found |= {"sink": sinks, "alibi_slopes": slopes}
    named = {role: found[role] for role in _ORDER if found.get(role) is not None}
    named |= function.tensors
    call = Call(
        roles=tuple(named),
        band=band,
        scalars=(positive, *function.scalars),
        selection=Selection.current(implementation),
        softmax=kind,
        softcap=scalars.softcap(softcap),
        score_mod=function.score_mod,
        alibi=standard,
        dropout_p=dropout_p,
        longest_q=longest_q,
        longest_kv=longest_kv,
        deterministic=flag("deterministic", False if deterministic is None else deterministic),
        return_lse=return_lse,
        return_max_logit=flag("return_max_logit", return_max_logit),
        slack_is_finite=flag("slack_is_finite", slack_is_finite),
    )
    return Prepared(call, tuple(named.values()))


def for_training(call: Call, wanted: Collection[str]) -> Call:
    """The call as differentiating it in ``wanted`` of bias and sink would make it."""
    return replace(
        call,
        training=True,
        bias_grad="bias" in call.roles and "bias" in wanted,
        sink_grad="sink" in call.roles and "sink" in wanted,
    )
