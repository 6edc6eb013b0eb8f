"""Attention for dense operands."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from sdpa_core import flag, positive_scale

from .arguments import masks, numbers, operands
from .attend import attend
from .convert import fold
from .dense import Dense, dense
from .features import PLAIN

#: Arguments without which a call is a common one, prepared with as few steps as possible: the
#: defaults of ``extensions`` below.
_COMMON = (
    *(None, None, "vanilla", None, None, False, None, None, ()),
    *(None, None, "bhsd", False, None, False),
)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    causal_alignment: str = "top_left",
    window: tuple[int | None, int | None] | None = None,
    softmax: str = "vanilla",
    sink: Tensor | None = None,
    softcap: float | None = None,
    alibi: bool | Tensor = False,
    score_mod: Callable[..., Any] | None = None,
    score_mod_bprop: Callable[..., Any] | None = None,
    score_mod_args: tuple[Any, ...] = (),
    seq_lens_q: Tensor | None = None,
    seq_lens_kv: Tensor | None = None,
    layout: str = "bhsd",
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool | None = None,
    recipe: Any = None,
    slack_is_finite: bool = False,
    backend: str | None = None,
) -> Any:
    r"""Attention, ``softmax(scale * Q K^T) V``, with the meaning of torch's function of that name.

    A drop-in for ``torch.nn.functional.scaled_dot_product_attention``: same order of arguments,
    same ranks and broadcasting, any strides. Logits and softmax are float32 for 16-bit inputs.

    Args:
        query: ``[..., Hq, Sq, D]``, float16, bfloat16, float32 or float64.
        key: ``[..., Hkv, Skv, D]``, of the query's dtype and device. One head serves all query
            heads; more, but fewer than ``Hq``, need ``enable_gqa``.
        value: ``[..., Hkv, Skv, Dv]``; ``Dv`` may differ from ``D``.
        attn_mask: broadcastable to ``[..., Hq, Sq, Skv]``: boolean, True where a query sees a key,
            or numbers of the query's dtype or float32 that are added to the logits (-inf hides).
            Numbers have a gradient. Goes together with ``is_causal``.
        dropout_p: probability that an element of the softmax is dropped, ``0 <= dropout_p < 1``;
            those kept are divided by ``1 - dropout_p``. It is applied whenever it is not 0. The
            seed comes from torch's generator of the device.
        is_causal: query ``i`` sees keys ``j <= i`` (aligned top-left).
        scale: factor of the logits; ``1 / sqrt(D)`` by default.
        enable_gqa: query head ``h`` uses key head ``h // (Hq // Hkv)``.
        causal_alignment: where the diagonal of ``is_causal``, ``window`` and ``alibi`` lies:
            ``"top_left"``, or ``"bottom_right"``: keys ``j <= i + Skv - Sq``, the meaning of
            flash-attn and of decoding with a cache. With lengths these are each sequence's own.
        window: ``(left, right)`` in tokens, inclusive: query ``i`` sees keys from ``i - left`` to
            ``i + right`` of the diagonal; None is unbounded. With ``is_causal`` right is 0.
        softmax: ``"off_by_one"`` adds 1 to the denominator; ``"learnable"`` is what a sink means.
        sink: ``[Hq]``, floating point: ``exp(sink)`` is added to the denominator. Has a gradient.
        softcap: logits become ``softcap * tanh(logits / softcap)``; positive.
        alibi: True subtracts ``slope * |i - j|`` (from the diagonal), with the standard slopes;
            or slopes ``[Hq]`` or ``[B, Hq]``, without a gradient.
        score_mod: ``score_mod(graph, score, *score_mod_args)`` gives the logits from the scaled
            ones, written with the operations of cuDNN's graphs (``sdpa_core.score_mod``). It is
            called once, with symbols. Comes after ``softcap``.
        score_mod_bprop: ``(graph, grad, score, *score_mod_args)`` gives its gradient; derived by
            default.
        score_mod_args: tensors that broadcast to ``[B, Hq, Sq, Skv]``, without gradients, and
            numbers.
        seq_lens_q, seq_lens_kv: int32 or int64 ``[B]``: tokens of each sequence. Later tokens do
            not exist: whatever they hold, output and gradients there are 0.
        layout: order of the axes of query, key, value and output: ``"bhsd"``, ``"bshd"`` or
            ``"sbhd"``; but for the first, of rank 4. Views, nothing is copied.
        return_lse: also return the log-sum-exp of each row of logits, sink included:
            ``[..., Hq, Sq]``, float32 (float64 for float64 inputs), natural logarithm. It is not
            differentiable.
        return_max_logit: also return the largest visible logit of each head, ``[Hq]``, of the
            log-sum-exp's dtype; -inf if nothing is visible, the sink left out. It has no gradient.
        deterministic: bitwise equal gradients from run to run; by default
            ``torch.are_deterministic_algorithms_enabled()``.
        recipe: not implemented yet; anything but None is refused.
        slack_is_finite: promises that tokens past a sequence's length hold neither NaN nor
            infinity, which saves a copy of key and value.
        backend: use this backend or none: ``"cudnn"``, ``"reference"``, or that of an installed
            package. By default the fastest that supports the problem.

    Returns:
        ``[..., Hq, Sq, Dv]`` in the query's dtype, stored in the query's order of axes; then, if
        asked for, the log-sum-exp and the largest logits, as a tuple. A row that sees no key has
        output 0, zero gradients, and log-sum-exp -inf (with a sink: the sink).

    Raises:
        TypeError, ValueError: a wrong argument; the text names it.
        NoBackendError: valid, but unsupported; the text has every backend's reasons.

    Equivalent, without broadcasting::

        logits = (query.float() @ key.float().mT) * scale
        logits = score_mod(softcap * (logits / softcap).tanh())
        logits = logits + attn_mask - slopes[:, None, None] * (i + shift - j).abs()
        visible = (i + shift - left <= j) & (j <= i + shift + right)   # i = rows, j = columns
        logits = logits.masked_fill(~(visible & (i < seq_lens_q) & (j < seq_lens_kv)), -inf)
        lse = torch.cat([logits, sink[:, None, None].expand(Hq, Sq, 1)], -1).logsumexp(-1)
        weights = dropout((logits - lse[..., None]).exp(), dropout_p)
        output = (weights @ value.float()).to(query.dtype)
    """
    extensions = (
        attn_mask,
        window,
        softmax,
        sink,
        softcap,
        alibi,
        score_mod,
        score_mod_bprop,
        score_mod_args,
        seq_lens_q,
        seq_lens_kv,
        layout,
        return_max_logit,
        recipe,
        slack_is_finite,
    )
    # Comparing identities first keeps the common call at a fraction of a microsecond.
    dropped = type(dropout_p) is not float or dropout_p
    if dropped or any(map(is_not, extensions, _COMMON)):
        call = dense(
            query,
            key,
            value,
            attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
            causal_alignment=causal_alignment,
            window=window,
            softmax=softmax,
            sink=sink,
            softcap=softcap,
            alibi=alibi,
            score_mod=score_mod,
            score_mod_bprop=score_mod_bprop,
            score_mod_args=score_mod_args,
            seq_lens_q=seq_lens_q,
            seq_lens_kv=seq_lens_kv,
            layout=layout,
            return_lse=return_lse,
            return_max_logit=return_max_logit,
            deterministic=deterministic,
            recipe=recipe,
            slack_is_finite=slack_is_finite,
        )
        return _attend(call, numbers.backend_of(backend))
    query, key, value = operands.tensors(query, key, value)
    query, key, value, leading = fold(query, key, value, flag("enable_gqa", enable_gqa))
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend is {backend!r}; expected a name or None")
    features = PLAIN[masks.band_of(is_causal, causal_alignment)]
    return_lse = flag("return_lse", return_lse)
    factor, scale = positive_scale(numbers.scale_of(scale, query.shape[-1]))
    if factor != 1.0:
        query = operands.times(query, factor)
    training = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    )
    options = (features, training, return_lse, numbers.is_deterministic(deterministic), ())
    results = attend((query, key, value), (scale,), options, backend)
    output = results[0]
    if len(leading) != 2:
        output = output.reshape(*leading, *output.shape[-2:])
    if not return_lse:
        return output
    stats = results[1]
    return output, stats.reshape(*leading, stats.shape[-2])


def _attend(call: Dense, backend: str | None) -> Any:
    """Run a call that asks for more than the common ones."""
    request, leading, layout = call
    results = attend(*request.call(), backend)
    output = results[0]
    if len(leading) != 2:
        output = output.reshape(*leading, *output.shape[-2:])
    asked: tuple[Tensor, ...] = (operands.from_bhsd(layout, output),)
    if request.return_lse:
        asked += (results[1].reshape(*leading, results[1].shape[-2]),)
    if request.return_max_logit:
        asked += (results[-1],)
    return asked if len(asked) > 1 else asked[0]
