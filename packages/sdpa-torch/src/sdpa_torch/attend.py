"""From checked operands to a backend's callables: prepare once, then run."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from sdpa_core import AttentionProblem, Decision, decide, require
from sdpa_core.config import Fallback, Settings, preferred_backends, settings
from sdpa_core.diagnostics import warn_if_slow

from . import dispatch, empty, reference, router
from .autograd import NativeAttention, TransformableAttention
from .convert import is_regular, misaligned, vector_ready
from .dispatch import Environment, Prepared
from .features import Features
from .specs import Options, Raw, as_read, problem_of, specs, traced

#: Replaced by ``testing.fake_cudnn``.
environment: Environment = dispatch.REAL


def attend(
    tensors: tuple[Tensor, ...], scalars: tuple[float, ...], options: Options, backend: str | None
) -> tuple[Tensor, ...]:
    """Results of operands named by the features' roles.

    Args:
        tensors: query, key and value of rank 4 (packed: 3), and what the features need besides.
        scalars: the scale, positive, and the numbers of ``score_mod``.

    Returns:
        The output; the statistics if asked for, or perhaps if not; and, last, the largest logits
        if asked for. See ``dispatch.Forward``.
    """
    if not router.is_plain(*tensors):
        return _transformable(tensors, scalars, options, backend)
    native = environment.device_spec(tensors[0].device).platform == "cuda"
    if native and misaligned(*tensors):
        tensors = readable(tensors, options[0])
    operands = tuple([(t.shape, t.stride(), t.dtype) for t in tensors])
    prepared = _prepare(
        operands,
        tensors[0].device,
        options,
        backend,
        preferred_backends(),
        environment,
        settings(),
    )
    if prepared is _COPY:
        return attend(readable(tensors, options[0]), scalars, options, backend)
    if prepared is _EMPTY:
        return empty.results(tensors, options[0])
    if prepared.problem.training:
        return NativeAttention.apply(prepared, scalars, *tensors)  # type: ignore[no-any-return]
    return prepared.forward(tensors, scalars)


#: Markers in place of prepared callables: nothing to compute, or strides that must be copied.
_EMPTY: Any = object()
_COPY: Any = object()


@lru_cache(maxsize=4096)
def _prepare(
    operands: tuple[Raw, ...],
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
    features = options[0]
    native = environment.device_spec(device).platform == "cuda"
    if native:
        operands = as_read(operands, features)
    problem = problem_of(operands, options)
    if problem.is_empty:
        return _EMPTY  # type: ignore[no-any-return]
    if native and not _are_regular(operands, features):
        return _COPY  # type: ignore[no-any-return]
    return dispatch.prepare(problem, features, device, backend, environment)


def _are_regular(operands: tuple[Raw, ...], features: Features) -> bool:
    """Whether native code reads them in place."""
    vectors = all(is_regular(shape, strides, t.itemsize) for shape, strides, t in operands[:3])
    return vectors and all(
        strides[-1] == 1 or shape[-1] == 1
        for role, (shape, strides, _) in zip(features.roles[3:], operands[3:], strict=True)
        if role in _READ_BY_ROWS
    )


#: Operands with rows of numbers that are read one after another.
_READ_BY_ROWS = ("bias", "page_table_k", "page_table_v")


def readable(tensors: tuple[Tensor, ...], features: Features) -> tuple[Tensor, ...]:
    """The operands, those that native code cannot read in place copied; known to autograd."""
    others = (
        _readable(role, tensor)
        for role, tensor in zip(features.roles[3:], tensors[3:], strict=True)
    )
    return (*(vector_ready(tensor) for tensor in tensors[:3]), *others)


def _readable(role: str, tensor: Tensor) -> Tensor:
    by_rows = role in _READ_BY_ROWS and tensor.shape[-1] != 1
    if misaligned(tensor) or (by_rows and tensor.stride(-1) != 1):
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor


def _transformable(
    tensors: tuple[Tensor, ...], scalars: tuple[float, ...], options: Options, backend: str | None
) -> tuple[Tensor, ...]:
    """The path made of torch operations, for whatever must not reach raw addresses."""
    features, return_lse = options[0], options[2]
    operands = traced(tensors)
    query, key, _ = specs(operands, features)
    if 0 in query.shape[:3] or key.shape[2] == 0 or 0 in (*operands[0][0][:1], *operands[1][0][:1]):
        return empty.results(tensors, features)
    # A choice among one: decide() would break the traced graph for nothing.
    traced_on_cpu = torch.compiler.is_compiling() and tensors[0].device.type == "cpu"
    if backend is not None or _preferred_when_traced() or not traced_on_cpu:
        decision = _reference_only(problem_of(operands, options), tensors, features, backend)
        if backend is None and settings().fallback is Fallback.WARN:
            warn_if_slow(decision)
    # Forward mode knows the operations themselves; and torch.compile loses the operands of a
    # Function with a variable number of them where nothing requires a gradient (torch 2.13).
    unrecorded = not options[1] if torch.compiler.is_compiling() else router.is_dual()
    if unrecorded:
        return reference.forward(tensors, scalars, features)
    if torch.compiler.is_compiling():
        tensors = _distinct(tensors)
    return TransformableAttention.apply(features, scalars, return_lse, *tensors)  # type: ignore[no-any-return]


def _distinct(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Views in place of repeated tensors: torch.compile takes no Function with the same twice."""
    result: list[Tensor] = []
    for tensor in tensors:
        repeated = any(tensor is other for other in result)
        result.append(tensor.view_as(tensor) if repeated else tensor)
    return tuple(result)


def _preferred_when_traced() -> tuple[str, ...]:
    return preferred_backends()


# All that torch.compiler.assume_constant_result does, but for the import of torch._dynamo, which
# takes more than three seconds (torch 2.11, 2.13).
_preferred_when_traced._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _reference_only(
    problem: AttentionProblem,
    tensors: tuple[Tensor, ...],
    features: Features,
    backend: str | None,
) -> Decision:
    spec = environment.device_spec(tensors[0].device)
    known = dispatch.callable_now(environment)
    reasons = router.reasons(dict(zip(features.roles, tensors, strict=True)))
    against = (*dispatch.elsewhere(backend, spec), *reasons)
    return require(decide(problem, spec, backend=backend, known=known, against=against))
