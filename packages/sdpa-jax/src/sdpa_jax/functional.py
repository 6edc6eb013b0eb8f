"""``dot_product_attention``: dense sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from jax import Array
from jax.typing import ArrayLike

from .dense import dense

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
) -> Array | tuple[Array, ...]:
    r"""Attention with the arguments of ``jax.nn.dot_product_attention``, and more.

    For each query ``t`` of each head, over the keys ``s`` that it sees:

    .. math:: O_t = \sum_s \frac{e^{L_{ts}}}{\sum_r e^{L_{tr}}}\, v_s
       \qquad L_{ts} = f(c\, q_t \cdot k_s) + \mathit{bias}_{ts}

    Differentiable in query, key, value, bias and sink (reverse mode), and usable under ``jit``,
    ``vmap``, ``scan`` and ``checkpoint``; the policy ``save_only_these_names("sdpa_out",
    "sdpa_lse")`` keeps what the backward pass needs. Equivalent, without grouped heads, for an
    array ``visible``::

        logits = scale * jnp.einsum("btnh,bsnh->bnts", query, key, precision="highest")
        if softcap is not None:
            logits = softcap * jnp.tanh(logits / softcap)
        logits = score_mod(logits) + bias - slopes * abs(t + shift - s)
        logits = jnp.where(visible, logits, -jnp.inf)
        denominator = jnp.exp(logits).sum(-1, keepdims=True)  # + 1, or + exp(sink)
        weights = jnp.exp(logits) / denominator
        weights = jnp.where(kept, weights / (1 - dropout_rate), 0)
        out = jnp.einsum("bnts,bsnh->btnh", weights, value)
        residual = jnp.log(denominator)[..., 0].swapaxes(1, 2)
        max_logit = logits.max((0, 2, 3))

    Args:
        query: ``[B, T, N, H]`` or ``[T, N, H]``; float16, bfloat16, float32 or float64.
        key: ``[B, S, K, H]`` or ``[S, K, H]``, of the query's type. ``K`` divides ``N``; query head
            ``n`` uses key head ``n // (N // K)``.
        value: ``[B, S, K, Hv]`` or ``[S, K, Hv]``, of the query's type. Unlike in ``jax.nn``,
            ``Hv`` may differ from ``H``.
        bias: added to the logits; broadcastable to ``[B, N, T, S]``, of the query's type or
            float32. -inf hides. Its gradient is computed only where it is asked for.
        mask: bool, broadcastable to ``[B, N, T, S]``; True is visible. Backends get it as a bias
            in the query's type.
        scale: ``c``, a concrete number; None: ``1 / sqrt(H)``.
        is_causal: each query sees the keys up to its own position.
        query_seq_lengths: int32 or int64 ``[B]``, in tokens: later queries do not exist. Their
            output is 0, their log-sum-exp -inf, and what they hold does not matter. Without an
            axis of the batch also a scalar, of Python or NumPy too.
        key_value_seq_lengths: the same of keys and values.
        local_window_size: a query sees so many tokens to its left and to its right, a pair or one
            number for both, and itself. With ``is_causal`` none to its right.
        implementation: a backend's name (``"cudnn"``, ``"reference"``) or ``"xla"``, the same as
            ``"reference"``: it and nothing else runs. None: the context ``sdpa_jax.backends``, the
            variable ``SDPA_BACKENDS``, or else the best for each platform, which is cuDNN on CUDA
            where it supports the call. ``sdpa_jax.explain`` tells.
        return_residual: also return the log-sum-exp. It is not differentiable: a gradient that
            reaches it is an error.
        causal_alignment: the diagonal of ``is_causal``, of a window and of ``alibi`` starts from
            the first query and key (``"top_left"``) or ends at the last ones
            (``"bottom_right"``), which each sequence's lengths tell.
        softmax: ``"vanilla"``; ``"off_by_one"`` adds 1 to the denominator; ``"learnable"``, which
            a sink implies, ``exp(sink)``.
        sink: ``[N]``, any floating-point type, computed in float32 (float64 for float64): a logit
            without a value.
        softcap: a positive bound of the logits.
        alibi: subtract ``slope * |t + shift - s|``, where ``shift`` is the diagonal's. True: the
            standard slopes of ``N`` heads; or slopes ``[N]`` or ``[B, N]``, without gradient.
        score_mod: ``score_mod(graph, score, *score_mod_args)`` is called once, with symbols, and
            returns the function of the scaled logits, see ``sdpa_core.score_mod``.
        score_mod_bprop: ``score_mod_bprop(graph, grad, score, *score_mod_args)``, its derivative;
            None: derived.
        score_mod_args: arrays that are broadcastable to ``[B, N, T, S]``, without gradient, and
            numbers.
        segment_ids: integers ``[B, T]``, or a pair of such of the queries and of the keys: tokens
            see tokens of their own segment. Backends get them as a mask.
        dropout_rate: probability that a weight is dropped, in ``[0, 1)``.
        dropout_key: a key of ``jax.random``, from which alone follows what is dropped. Inside
            ``shard_map`` devices with one key drop alike; fold their index into it.
        return_max_logit: also return the largest visible logit of each head, without the sink. Not
            differentiable.
        deterministic: gradients are bitwise equal from run to run. None: False; JAX has no setting
            of its own to follow.
        recipe: not implemented yet; any value but None is refused.
        slack_is_finite: rows past a sequence's length hold no NaN and no infinity. Otherwise
            backends that would read them get copies with zeros there.

    Returns:
        The output, of the query's type and shape but with ``Hv`` for ``H``; or a tuple of it and
        of what else is asked for: the residual, the natural logarithm of the softmax's denominator,
        ``[B, T, N]`` or ``[T, N]``, and the largest logits ``[N]``, both float32 (float64 for
        float64). A query that sees no key has output 0 and log-sum-exp -inf, with a sink that of
        the sink alone. All sums are made in float32 (float64 for float64).

    Raises:
        TypeError: an operand is no array or of the wrong element type, a number is not concrete,
            or a flag is no bool.
        ValueError: ranks, heads, tokens or head dims do not fit, arguments contradict each other,
            or a name is unknown.
        NoBackendError: an argument is not implemented yet; or, when the call is compiled, no
            backend that may run it supports it. The text has every reason.
        SdpaEnvironmentError: cuDNN is needed and the installation lacks something.
    """
    prepared = dense(
        query,
        key,
        value,
        bias,
        mask,
        scale=scale,
        is_causal=is_causal,
        query_seq_lengths=query_seq_lengths,
        key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size,
        implementation=implementation,
        return_residual=return_residual,
        causal_alignment=causal_alignment,
        softmax=softmax,
        sink=sink,
        softcap=softcap,
        alibi=alibi,
        score_mod=score_mod,
        score_mod_bprop=score_mod_bprop,
        score_mod_args=score_mod_args,
        segment_ids=segment_ids,
        dropout_rate=dropout_rate,
        dropout_key=dropout_key,
        return_max_logit=return_max_logit,
        deterministic=deterministic,
        recipe=recipe,
        slack_is_finite=slack_is_finite,
    )
    results = prepared.call.run()
    output, lse = results.output, results.lse
    return results._replace(
        output=output.reshape(*prepared.rows, output.shape[-1]),
        lse=None if lse is None else lse.swapaxes(1, 2).reshape(prepared.rows),
    ).asked()
