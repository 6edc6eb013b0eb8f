"""The call of ``dot_product_attention``: all its arguments, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

from sdpa_core import check_operands, flag
from sdpa_core.layout import Shape
from sdpa_core.pending import refuse_pending

from . import attend, convert
from .arguments import bias as biases
from .arguments import lengths, scalars
from .arguments import score_mod as functions


class Dense(NamedTuple):
    """A call of ``dot_product_attention``.

    Attributes:
        call: on arrays of rank 4.
        rows: the query's axes but for the last, as it was given.
    """

    call: attend.Prepared
    rows: Shape


def dense(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    mask: Any,
    *,
    is_causal: Any,
    query_seq_lengths: Any,
    key_value_seq_lengths: Any,
    local_window_size: Any,
    return_residual: Any,
    causal_alignment: Any,
    softmax: Any,
    score_mod: Any,
    score_mod_bprop: Any,
    score_mod_args: Any,
    segment_ids: Any,
    recipe: Any,
    **others: Any,
) -> Dense:
    """The call that these arguments of ``dot_product_attention`` describe.

    Raises:
        TypeError, ValueError, NoBackendError: as there.
    """
    refuse_pending("dot_product_attention", {"recipe": recipe})
    given = convert.arrays(query, key, value)
    operands = convert.of_rank_4(given)
    check_operands(*convert.specs(*operands))
    batch, tokens_q, heads, _ = operands.query.shape
    pairs = (batch, heads, tokens_q, operands.key.shape[1])
    window = scalars.local_window(local_window_size, flag("is_causal", is_causal))
    seq_lens = {"seq_lens_q": query_seq_lengths, "seq_lens_kv": key_value_seq_lengths}
    names = {"seq_lens_q": "query_seq_lengths", "seq_lens_kv": "key_value_seq_lengths"}
    further = {
        role: lengths.seq_lens(names[role], x, batch, may_be_scalar=given.query.ndim < 4)
        for role, x in seq_lens.items()
        if x is not None
    }
    call = attend.prepared(
        operands,
        {**further, "bias": biases.bias(bias, mask, segment_ids, pairs, operands.query)},
        batch=batch,
        band=scalars.band(is_causal, causal_alignment, window, "local_window_size"),
        softmax_kind=softmax,
        function=functions.function(score_mod, score_mod_bprop, score_mod_args, pairs),
        return_lse=flag("return_residual", return_residual),
        **others,
    )
    return Dense(call, given.query.shape[:-1])
