"""The public functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from numbers import Real
from operator import is_not
from typing import Any

import torch
from torch import Tensor

from sdpa_core import (
    Alignment,
    AttentionProblem,
    Band,
    Decision,
    DeviceSpec,
    TensorSpec,
    Unsupported,
    check_operands,
    decide,
    default_scale,
    positive_scale,
    require,
)
from sdpa_core.config import Fallback, Settings, preferred_backends, settings
from sdpa_core.diagnostics import warn_if_slow
from sdpa_core.layout import dense_like, row_major
from sdpa_core.pending import PENDING, refuse_pending

from . import dispatch, reference, router
from .autograd import NativeAttention, TransformableAttention
from .convert import dtype_of, fold, is_regular, misaligned, vector_ready
from .dispatch import Environment, Prepared

_NAME = "sdpa_torch.scaled_dot_product_attention"

#: Arguments that must have these values for now, in the order of the signature.
_PENDING = {
    name: PENDING[name]
    for name in (
        "attn_mask",
        "window",
        "softmax",
        "sink",
        "softcap",
        "alibi",
        "score_mod",
        "score_mod_bprop",
        "score_mod_args",
        "seq_lens_q",
        "seq_lens_kv",
        "layout",
        "return_max_logit",
        "recipe",
        "slack_is_finite",
    )
}

#: Replaced by ``testing.fake_cudnn``.
environment: Environment = dispatch.REAL


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
    dropped = type(dropout_p) is not float or dropout_p
    if dropped or any(map(is_not, pending, _PENDING.values())):
        refuse_pending(_NAME, {"dropout_p": dropout_p, **dict(zip(_PENDING, pending, strict=True))})
    query, key, value = _checked(query, key, value)
    enable_gqa = _flag("enable_gqa", enable_gqa)
    query, key, value, leading = fold(query, key, value, enable_gqa)
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend is {backend!r}; expected a name or None")
    band = _band(is_causal, causal_alignment)
    return_lse = _flag("return_lse", return_lse)
    factor, scale = positive_scale(check_scale(scale, query.shape[-1]))
    if factor != 1.0:
        query = query * factor
    training = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    )
    options = (band, training, return_lse, _deterministic(deterministic))
    output, stats = _attend(query, key, value, scale, options, backend)
    if len(leading) != 2:
        output = output.reshape(*leading, *output.shape[-2:])
    if not return_lse:
        return output
    return output, stats.reshape(*leading, stats.shape[-2])


Options = tuple[Band, bool, bool, bool]


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, options: Options, backend: str | None
) -> tuple[Tensor, Tensor]:
    """Rank-4 operands -> output ``[B, Hq, Sq, Dv]`` and stats ``[B, Hq, Sq, 1]`` if asked for."""
    if not router.is_plain(query, key, value):
        return _transformable(query, key, value, scale, options, backend)
    native = environment.device_spec(query.device).platform == "cuda"
    if native and misaligned(query, key, value):
        query, key, value = vector_ready(query), vector_ready(key), vector_ready(value)
    operands = _raw(query), _raw(key), _raw(value)
    prepared = _prepare(
        operands, query.device, options, backend, preferred_backends(), environment, settings()
    )
    if prepared is _COPY:
        copies = vector_ready(query), vector_ready(key), vector_ready(value)
        return _attend(*copies, scale, options, backend)
    if prepared is _EMPTY:
        return _empty(query, key, value)
    if prepared.problem.training:
        return NativeAttention.apply(query, key, value, prepared, scale)  # type: ignore[no-any-return]
    return prepared.forward(query, key, value, scale)  # type: ignore[return-value]


def asked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool,
    enable_gqa: bool,
    causal_alignment: str,
    return_lse: bool,
    deterministic: bool | None,
    training: bool | None,
    spec: DeviceSpec | None,
) -> tuple[AttentionProblem, DeviceSpec, tuple[Unsupported, ...]]:
    """What a call asks of the backends, for ``explain``.

    Args:
        training: None asks autograd.
        spec: the device; None is that of the operands.

    Returns:
        The problem, after the copies that the call would make; the device; and the reasons of the
        calling code against native backends.
    """
    query, key, value = _checked(query, key, value)
    query, key, value, _ = fold(query, key, value, _flag("enable_gqa", enable_gqa))
    against = router.reasons(query, key, value) if spec is None else ()
    spec = spec or environment.device_spec(query.device)
    if training is None:
        wanted = query.requires_grad or key.requires_grad or value.requires_grad
        training = wanted and torch.is_grad_enabled()
    band = _band(is_causal, causal_alignment)
    flags = _flag("training", training), _flag("return_lse", return_lse)
    options = (band, *flags, _deterministic(deterministic))
    tensors = (query, key, value)
    raw = [_raw(t) if spec.platform != "cuda" else _as_copied(_raw(t)) for t in tensors]
    return _problem((raw[0], raw[1], raw[2]), options), spec, against


def _as_copied(raw: Raw) -> Raw:
    """The operand as native code gets it: see ``vector_ready``."""
    shape, strides, dtype = raw
    if is_regular(shape, strides, dtype.itemsize):
        return raw
    return shape, dense_like(shape, shape, strides), dtype


def check_pending(given: dict[str, Any]) -> None:
    """Refuse arguments that are not implemented yet, and those that do not exist."""
    for name in given:
        if name not in _PENDING and name != "dropout_p":
            raise TypeError(f"{_NAME} has no argument {name!r}")
    refuse_pending(_NAME, given)


Raw = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


#: Markers in place of prepared callables: nothing to compute, or strides that must be copied.
_EMPTY: Any = object()
_COPY: Any = object()


def _raw(tensor: Tensor) -> Raw:
    return tensor.shape, tensor.stride(), tensor.dtype


@lru_cache(maxsize=4096)
def _prepare(
    operands: tuple[Raw, Raw, Raw],
    device: torch.device,
    options: Options,
    backend: str | None,
    preferred: tuple[str, ...],
    environment: Environment,
    read: Settings,
) -> Prepared:
    """The chosen callables for operands of this kind, or one of the markers.

    ``decide`` finds out about ``preferred`` and ``read`` itself; here they separate the entries.
    """
    del preferred, read
    problem = _problem(operands, options)
    if problem.is_empty:
        return _EMPTY  # type: ignore[no-any-return]
    native = environment.device_spec(device).platform == "cuda"
    if native and not all(is_regular(shape, strides, t.itemsize) for shape, strides, t in operands):
        return _COPY  # type: ignore[no-any-return]
    return dispatch.prepare(problem, device, backend, environment)


def _problem(operands: tuple[Raw, Raw, Raw], options: Options) -> AttentionProblem:
    band, training, return_lse, deterministic = options
    return AttentionProblem.of(
        *_specs(operands),
        band=band,
        training=training,
        return_lse=return_lse,
        deterministic=deterministic,
    )


def _specs(operands: tuple[Raw, Raw, Raw]) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """The core's view of the operands, checked."""
    query, key, value = (
        TensorSpec(tuple(shape), tuple(strides), dtype_of(name, dtype))
        for name, (shape, strides, dtype) in zip(("query", "key", "value"), operands, strict=True)
    )
    check_operands(query, key, value)
    return query, key, value


def _transformable(
    query: Tensor, key: Tensor, value: Tensor, scale: float, options: Options, backend: str | None
) -> tuple[Tensor, Tensor]:
    """The path made of torch operations, for whatever must not reach raw addresses."""
    query_raw, key_raw, value_raw = (
        (tuple(tensor.shape), row_major(tensor.shape), tensor.dtype)
        for tensor in (query, key, value)
    )
    operands = query_raw, key_raw, value_raw
    _specs(operands)
    if 0 in query.shape[:3] or key.shape[2] == 0:
        return _empty(query, key, value)
    # A choice among one: decide() would break the traced graph for nothing.
    traced_on_cpu = torch.compiler.is_compiling() and query.device.type == "cpu"
    if backend is not None or _preferred_when_traced() or not traced_on_cpu:
        decision = _reference_only(_problem(operands, options), query, key, value, backend)
        if backend is None and settings().fallback is Fallback.WARN:
            warn_if_slow(decision)
    band, _, return_lse, _ = options
    if not torch.compiler.is_compiling() and router.is_dual():
        return reference.forward(query, key, value, band, scale)  # known to forward mode
    arguments = (band, scale, return_lse)
    return TransformableAttention.apply(query, key, value, *arguments)  # type: ignore[no-any-return]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _preferred_when_traced() -> tuple[str, ...]:
    return preferred_backends()


def _reference_only(
    problem: AttentionProblem, query: Tensor, key: Tensor, value: Tensor, backend: str | None
) -> Decision:
    spec = environment.device_spec(query.device)
    known = dispatch.callable_now(environment)
    reasons = router.reasons(query, key, value)
    return require(decide(problem, spec, backend=backend, known=known, against=reasons))


def _empty(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """No query, or no key: zeros and -inf, with zero gradients for the operands there are."""
    shape = query.shape[:3]
    # Sums over nothing: exactly 0, and known to autograd.
    zero = query[..., :0].sum() + key[..., :0].sum() + value[..., :0].sum()
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    output = query.new_zeros(*shape, value.shape[3]) + zero
    return output, query.new_full((*shape, 1), float("-inf"), dtype=wide)


def _checked(query: Any, key: Any, value: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The operands, as autocast wants them, if they are strided tensors on one device."""
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch.Tensor")
        if tensor.is_nested:
            raise TypeError(f"{name} is a nested tensor; expected a dense one")
        if tensor.layout is not torch.strided:
            raise TypeError(f"{name} has layout {tensor.layout}; expected a strided tensor")
        if tensor.device != query.device:
            raise ValueError(
                f"{name} is on {tensor.device}, query is on {query.device}; "
                f"query, key and value must be on one device"
            )
    kind = query.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return query, key, value
    dtype = torch.get_autocast_dtype(kind)
    return _autocast(query, dtype), _autocast(key, dtype), _autocast(value, dtype)


def _autocast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """What autocast makes of an operand of ``F.scaled_dot_product_attention``."""
    eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(dtype) if eligible else tensor


_FULL = Band()
_CAUSAL = {str(alignment): Band.causal(alignment) for alignment in Alignment}


def _flag(name: str, value: Any) -> bool:
    """A flag: True or False, also as 1 or 0 or NumPy's."""
    if value is True or value is False:
        return value
    if type(value).__name__ in ("bool", "bool_") or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} is {value!r}; expected True or False")


def _band(is_causal: bool, causal_alignment: str) -> Band:
    is_causal = _flag("is_causal", is_causal)
    if not isinstance(causal_alignment, str) or causal_alignment not in _CAUSAL:
        raise ValueError(
            f"causal_alignment = {causal_alignment!r}; expected one of {', '.join(_CAUSAL)}"
        )
    return _CAUSAL[causal_alignment] if is_causal else _FULL


def _deterministic(deterministic: bool | None) -> bool:
    if deterministic is None:
        return torch.are_deterministic_algorithms_enabled()
    return _flag("deterministic", deterministic)


def check_scale(scale: Any, head_dim: int) -> float:
    """The scale as a float: ``1 / sqrt(head_dim)`` if None."""
    if scale is None:
        return default_scale(head_dim)
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise TypeError(f"scale is a {type(scale).__name__}; expected a number")
    try:
        return float(scale)
    except OverflowError:
        raise ValueError(f"scale = {scale}; expected a finite number") from None
