"""Arguments of the public functions that no backend implements yet, and how they are refused.

Nothing is accepted and ignored: a value other than the default is a ``NoBackendError`` that says
so. An argument leaves this table when a backend, or the reference, implements it.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

from .errors import NoBackendError
from .reasons import Unsupported

#: Argument -> the only value that is implemented.
PENDING: Mapping[str, object] = {
    # F.scaled_dot_product_attention
    "attn_mask": None,
    "dropout_p": 0.0,
    # jax.nn.dot_product_attention
    "bias": None,
    "mask": None,
    "query_seq_lengths": None,
    "key_value_seq_lengths": None,
    "local_window_size": None,
    # extensions, in both
    "window": None,
    "softmax": "vanilla",
    "sink": None,
    "softcap": None,
    "alibi": False,
    "score_mod": None,
    "score_mod_bprop": None,
    "score_mod_args": (),
    "seq_lens_q": None,
    "seq_lens_kv": None,
    "layout": "bhsd",
    "segment_ids": None,
    "dropout_rate": 0.0,
    "dropout_key": None,
    "return_max_logit": False,
    "recipe": None,
    "slack_is_finite": False,
}


def pending_reasons(given: Mapping[str, object]) -> tuple[Unsupported, ...]:
    """A reason for each argument whose value is not implemented."""
    return tuple(
        Unsupported(name, _describe(value), repr(PENDING[name]), "not implemented yet")
        for name, value in given.items()
        if not _is_default(value, PENDING[name])
    )


def refuse_pending(function: str, given: Mapping[str, object]) -> None:
    """Raise ``NoBackendError`` with all reasons if any argument of ``function`` is pending."""
    reasons = pending_reasons(given)
    if reasons:
        lines = "\n".join(f"  {reason}" for reason in reasons)
        raise NoBackendError(f"{function}: no backend implements these arguments\n{lines}")


def _is_default(value: object, default: object) -> bool:
    # Arrays compare elementwise; a default is never one.
    comparable = isinstance(value, (Real, str, tuple))
    return value is default or (comparable and bool(value == default))


def _describe(value: object) -> object:
    shape = getattr(value, "shape", None)
    return f"an array of shape {list(shape)}" if shape is not None else value
