"""From checked operands to a backend's callables: prepare once, then run."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sdpa_core import (
    AttentionProblem,
    Band,
    Decision,
    DeviceSpec,
    TensorSpec,
    Unsupported,
    check_operands,
    decide,
    flag,
    require,
)
from sdpa_core.config import Fallback, Settings, preferred_backends, settings
from sdpa_core.diagnostics import warn_if_slow
from sdpa_core.layout import dense_like, row_major

from . import arguments, dispatch, reference, router
from .autograd import NativeAttention, TransformableAttention
from .convert import dtype_of, fold, is_regular, misaligned, vector_ready
from .dispatch import Environment, Prepared

#: Replaced by ``testing.fake_cudnn``.
environment: Environment = dispatch.REAL

#: Band, training, return_lse, deterministic.
Options = tuple[Band, bool, bool, bool]

#: Shape, strides and element type of an operand: what calls are prepared for.
Raw = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


def attend(
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
        return attend(*copies, scale, options, backend)
    if prepared is _EMPTY:
        return _empty(query, key, value)
    if prepared.problem.training:
        return NativeAttention.apply(query, key, value, prepared, scale)  # type: ignore[no-any-return]
    return prepared.forward(query, key, value, scale)  # type: ignore[return-value]


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
    return TransformableAttention.apply(query, key, value, band, scale, return_lse)  # type: ignore[no-any-return]


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
    query, key, value = arguments.tensors(query, key, value)
    query, key, value, _ = fold(query, key, value, flag("enable_gqa", enable_gqa))
    against = router.reasons(query, key, value) if spec is None else ()
    spec = spec or environment.device_spec(query.device)
    if training is None:
        wanted = query.requires_grad or key.requires_grad or value.requires_grad
        training = wanted and torch.is_grad_enabled()
    band = arguments.band_of(is_causal, causal_alignment)
    flags = flag("training", training), flag("return_lse", return_lse)
    options = (band, *flags, arguments.is_deterministic(deterministic))
    tensors = (query, key, value)
    raw = [_raw(t) if spec.platform != "cuda" else _as_copied(_raw(t)) for t in tensors]
    return _problem((raw[0], raw[1], raw[2]), options), spec, against


def _as_copied(raw: Raw) -> Raw:
    """The operand as native code gets it: see ``vector_ready``."""
    shape, strides, dtype = raw
    if is_regular(shape, strides, dtype.itemsize):
        return raw
    return shape, dense_like(shape, shape, strides), dtype
