"""The public functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sdpa_core import flag, positive_scale

from . import arguments
from .attend import attend
from .convert import fold


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
        is_causal: query ``i`` sees keys ``j <= i`` (aligned top-left).
        scale: factor of the logits; ``1 / sqrt(D)`` by default.
        enable_gqa: query head ``h`` uses key head ``h // (Hq // Hkv)``.
        causal_alignment: ``"top_left"``, or ``"bottom_right"``: keys
            ``j <= i + Skv - Sq``, the meaning of flash-attn and of decoding with a cache.
        return_lse: also return the log-sum-exp of each row of logits: ``[..., Hq, Sq]``, float32
            (float64 for float64 inputs), natural logarithm. It is not differentiable.
        deterministic: bitwise equal gradients from run to run; by default
            ``torch.are_deterministic_algorithms_enabled()``.
        backend: use this backend or none: ``"cudnn"``, ``"reference"``, or that of an installed
            package. By default the fastest that supports the problem.

    The other arguments are not implemented yet; anything but their default is refused.

    Returns:
        ``[..., Hq, Sq, Dv]`` in the query's dtype, stored in the query's order of axes; with
        ``return_lse``, the pair of it and the log-sum-exp. A row that sees no key has output 0,
        log-sum-exp -inf and zero gradients.

    Raises:
        TypeError, ValueError: a wrong argument; the text names it.
        NoBackendError: valid, but unsupported; the text has every backend's reasons.

    Equivalent, without broadcasting::

        logits = (query.float() @ key.float().mT) * scale
        if is_causal:
            shift = Skv - Sq if causal_alignment == "bottom_right" else 0
            logits = logits.masked_fill(j > i + shift, -inf)   # i = rows, j = columns
        lse = logits.logsumexp(-1)
        output = ((logits - lse[..., None]).exp() @ value.float()).to(query.dtype)
    """
    pending = (
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
    arguments.refuse_implemented_later(dropout_p, pending)
    query, key, value = arguments.tensors(query, key, value)
    enable_gqa = flag("enable_gqa", enable_gqa)
    query, key, value, leading = fold(query, key, value, enable_gqa)
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend is {backend!r}; expected a name or None")
    band = arguments.band_of(is_causal, causal_alignment)
    return_lse = flag("return_lse", return_lse)
    factor, scale = positive_scale(arguments.scale_of(scale, query.shape[-1]))
    if factor != 1.0:
        query = query * factor
    training = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    )
    options = (band, training, return_lse, arguments.is_deterministic(deterministic))
    output, stats = attend(query, key, value, scale, options, backend)
    if len(leading) != 2:
        output = output.reshape(*leading, *output.shape[-2:])
    if not return_lse:
        return output
    return output, stats.reshape(*leading, stats.shape[-2])
