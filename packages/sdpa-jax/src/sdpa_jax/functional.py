"""The public functions."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from sdpa_core import Alignment, Band, check_operands, default_scale, flag, positive_scale
from sdpa_core.pending import refuse_pending

from . import convert, manual, vjp
from .calls import Call
from .dispatch import Selection

CausalAlignment = Literal["top_left", "bottom_right"]


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    causal_alignment: CausalAlignment = "top_left",
    softmax: str = "vanilla",
    sink: ArrayLike | None = None,
    softcap: float | None = None,
    alibi: bool | ArrayLike = False,
    score_mod: Callable[..., Any] | None = None,
    score_mod_bprop: Callable[..., Any] | None = None,
    score_mod_args: tuple[Any, ...] = (),
    segment_ids: ArrayLike | None = None,
    dropout_rate: float = 0.0,
    dropout_key: Array | None = None,
    return_max_logit: bool = False,
    deterministic: bool | None = None,
    recipe: object | None = None,
    slack_is_finite: bool = False,
) -> Array | tuple[Array, Array]:
    r"""Attention with the arguments of ``jax.nn.dot_product_attention``, and more.

    For each query ``t`` of each head, over the keys ``s`` that it sees:

    .. math:: O_t = \sum_s \frac{e^{c\, q_t \cdot k_s}}{\sum_r e^{c\, q_t \cdot k_r}}\, v_s

    Differentiable in query, key and value (reverse mode), and usable under ``jit``, ``vmap``,
    ``scan`` and ``checkpoint``; the policy ``save_only_these_names("sdpa_out", "sdpa_lse")`` keeps
    what the backward pass needs. Equivalent, without grouped heads::

        logits = scale * jnp.einsum("btnh,bsnh->bnts", query, key, precision="highest")
        if is_causal:
            visible = jnp.tri(T, S, k=0 if causal_alignment == "top_left" else S - T)
            logits = jnp.where(visible, logits, -jnp.inf)
        out = jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(logits), value)
        residual = jax.nn.logsumexp(logits, axis=-1).swapaxes(1, 2)

    Args:
        query: ``[B, T, N, H]`` or ``[T, N, H]``; float16, bfloat16, float32 or float64.
        key: ``[B, S, K, H]`` or ``[S, K, H]``, of the query's type. ``K`` divides ``N``; query head
            ``n`` uses key head ``n // (N // K)``.
        value: ``[B, S, K, Hv]`` or ``[S, K, Hv]``, of the query's type. Unlike in ``jax.nn``,
            ``Hv`` may differ from ``H``.
        scale: ``c``, a concrete number; None: ``1 / sqrt(H)``.
        is_causal: each query sees the keys up to its own position.
        implementation: a backend's name (``"cudnn"``, ``"reference"``) or ``"xla"``, the same as
            ``"reference"``: it and nothing else runs. None: the context ``sdpa_jax.backends``, the
            variable ``SDPA_BACKENDS``, or else the best for each platform, which is cuDNN on CUDA
            where it supports the call. ``sdpa_jax.explain`` tells.
        return_residual: also return the log-sum-exp. It is not differentiable: a gradient that
            reaches it is an error.
        causal_alignment: the diagonal starts from the first query and key (``"top_left"``) or
            ends at the last ones (``"bottom_right"``).
        deterministic: gradients are bitwise equal from run to run. None: False; JAX has no setting
            of its own to follow.
        bias, mask, query_seq_lengths, key_value_seq_lengths, local_window_size, softmax, sink,
            softcap, alibi, score_mod, score_mod_bprop, score_mod_args, segment_ids, dropout_rate,
            dropout_key, return_max_logit, recipe, slack_is_finite: not implemented yet; any value
            but the default is refused.

    Returns:
        The output, of the query's type and shape but with ``Hv`` for ``H``. With
        ``return_residual`` a pair of it and the natural logarithm of the softmax's denominator,
        ``[B, T, N]`` or ``[T, N]``, float32 (float64 for float64). A query that sees no key has
        output 0 and log-sum-exp -inf. All sums are made in float32 (float64 for float64).

    Raises:
        TypeError: an operand is no array or of the wrong element type, ``scale`` is no concrete
            number, or a flag is no bool.
        ValueError: ranks, heads, tokens or head dims do not fit, or a name is unknown.
        NoBackendError: an argument is not implemented yet; or, when the call is compiled, no
            backend that may run it supports it. The text has every reason.
        SdpaEnvironmentError: cuDNN is needed and the installation lacks something.
    """
    refuse_pending(
        "dot_product_attention",
        {
            "bias": bias,
            "mask": mask,
            "query_seq_lengths": query_seq_lengths,
            "key_value_seq_lengths": key_value_seq_lengths,
            "local_window_size": local_window_size,
            "softmax": softmax,
            "sink": sink,
            "softcap": softcap,
            "alibi": alibi,
            "score_mod": score_mod,
            "score_mod_bprop": score_mod_bprop,
            "score_mod_args": score_mod_args,
            "segment_ids": segment_ids,
            "dropout_rate": dropout_rate,
            "dropout_key": dropout_key,
            "return_max_logit": return_max_logit,
            "recipe": recipe,
            "slack_is_finite": slack_is_finite,
        },
    )
    given = convert.arrays(query, key, value)
    operands = convert.of_rank_4(given)
    check_operands(*convert.specs(*operands))
    factor, call = call_of(
        operands.query.shape[-1],
        scale=scale,
        is_causal=is_causal,
        implementation=implementation,
        return_residual=return_residual,
        causal_alignment=causal_alignment,
        deterministic=deterministic,
    )
    if factor != 1.0:
        operands = operands._replace(query=operands.query * factor)
    output, *lse = vjp.attention(call, *manual.vary_alike(operands))
    rows = given.query.shape[:-1]
    output = output.reshape(*rows, output.shape[-1])
    if not call.return_lse:
        return output
    residual = vjp.not_differentiable(lse[0].swapaxes(1, 2))
    return output, residual.reshape(rows)


def call_of(
    head_dim: int,
    *,
    scale: float | None,
    is_causal: bool,
    implementation: str | None,
    return_residual: bool,
    causal_alignment: str,
    deterministic: bool | None,
) -> tuple[float, Call]:
    """The call that these arguments of ``dot_product_attention`` describe, for a positive scale.

    Returns:
        The factor to multiply the query by first, see ``sdpa_core.positive_scale``, and the call.

    Raises:
        TypeError, ValueError: as there.
    """
    given = default_scale(head_dim) if scale is None else _number("scale", scale)
    factor, positive = positive_scale(given)
    return factor, Call(
        band=_band(flag("is_causal", is_causal), causal_alignment),
        scale=positive,
        deterministic=flag("deterministic", False if deterministic is None else deterministic),
        return_lse=flag("return_residual", return_residual),
        selection=Selection.current(implementation),
    )


def _band(is_causal: bool, causal_alignment: str) -> Band:
    if not isinstance(causal_alignment, str) or causal_alignment not in list(Alignment):
        allowed = ", ".join(Alignment)
        raise ValueError(f"causal_alignment = {causal_alignment!r}; expected one of {allowed}")
    return Band.causal(Alignment(causal_alignment)) if is_causal else Band()


def _number(name: str, given: object) -> float:
    """A number that is known while tracing: plans and caches are made for its value."""
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced; expected a concrete number. Name it in static_argnames of jax.jit, "
            f"or multiply the query by it"
        )
    if isinstance(given, jax.Array | np.ndarray | np.generic) and np.ndim(given) == 0:
        given = given.item()
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise TypeError(f"{name} is {type(given).__name__}; expected a concrete number")
    try:
        return float(given)
    except OverflowError:
        raise ValueError(f"{name} = {given}; expected a finite number") from None
