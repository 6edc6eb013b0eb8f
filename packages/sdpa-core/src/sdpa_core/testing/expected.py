"""What the oracle says about a case."""

from __future__ import annotations

from functools import lru_cache

from ..alibi import alibi_slopes
from .case import Case, Inputs
from .logits import Array, Dropout, Features
from .philox_bits import keep_mask
from .reference import attended, attention, attention_backward
from .subject import DropoutState
from .tolerances import scales_of


def features_of(
    case: Case, inputs: Inputs | None = None, dropout: DropoutState | None = None
) -> Features:
    """What ``attention`` is given besides query, key and value.

    Args:
        inputs: None: the case's own.
        dropout: what an implementation computed its decisions from; None leaves dropout out.
    """
    inputs = case.arrays() if inputs is None else inputs
    slopes = alibi_slopes(case.heads) if case.alibi == "standard" else inputs.alibi_slopes
    function = case.score_mod_case
    return Features(
        band=case.band,
        scale=case.scale,
        bias=inputs.bias,
        mask=inputs.mask,
        alibi_slopes=slopes,
        softmax=case.softmax,
        sink=inputs.sink,
        softcap=case.softcap,
        score_mod=None if function is None else function.function(inputs.auxiliary),
        dropout=None if dropout is None else decisions(case, dropout),
        lengths_q=case.lengths_q,
        lengths_kv=case.lengths_kv,
    )


def decisions(case: Case, state: DropoutState) -> Dropout:
    """Which probabilities a case keeps."""
    counted = case.tokens_q if state.tokens_q is None else state.tokens_q
    shape = (case.batch, case.heads, max(counted, case.tokens_q), case.tokens_kv)
    keep = keep_mask(state.seed, state.offset, case.dropout_p, *shape)
    return Dropout(keep[:, :, : case.tokens_q], case.dropout_p)


@lru_cache(maxsize=8)
def expected(
    case: Case, dropout: DropoutState | None = None
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The oracle's results for a case, and their typical errors, by name."""
    inputs = case.arrays()
    features = features_of(case, inputs, dropout)
    forward = attention(*inputs.operands[:3], **features)
    gradients = attention_backward(*inputs.operands, **features)
    scales = scales_of(
        attended(*inputs.operands[:3], features),
        features,
        inputs.grad_output,
        forward,
        gradients,
        case.dtype,
        case.effective_bias_dtype,
    )
    exact = {**forward._asdict(), **gradients._asdict()}
    return (
        {name: array for name, array in exact.items() if array is not None},
        {name: array for name, array in scales._asdict().items() if array is not None},
    )
