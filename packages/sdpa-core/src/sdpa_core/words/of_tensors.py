"""The tensors of a problem as the caller passes them or gets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..dtypes import DType
from ..problem import AttentionProblem
from ..ragged import Packed
from ..tensor import VECTOR_BYTES, TensorSpec

#: Inputs that the library makes itself.
HIDDEN = frozenset(("dropout_seed", "dropout_offset"))


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor as the caller passes it or gets it.

    Attributes:
        name: the role of ``AttentionProblem.inputs``.
        spec: its shape, strides and type in the caller's memory.
        remark: what the shape does not tell.
    """

    name: str
    spec: TensorSpec
    remark: str = ""


def tensors(problem: AttentionProblem) -> Iterator[Seen]:
    """Every tensor of a problem that has a shape of its own, inputs first."""
    for role in problem.inputs:
        if role not in HIDDEN:
            yield _seen(problem, role)
    yield _seen(problem, "output")
    if problem.grad_output is not None:
        yield _seen(problem, "grad_output")


def _seen(problem: AttentionProblem, role: str) -> Seen:
    spec = _spec(problem, role)
    packed = _packed_side(problem, role)
    remarks = []
    if packed is not None:
        spec, remarks = _unpacked(spec, packed), ["packed"]
    elif problem.paged is not None and role in ("key", "value"):
        spec, remarks = _swapped(spec), ["a pool of pages"]
    if spec.alignment < VECTOR_BYTES:
        remarks.append(f"address a multiple of {spec.alignment} bytes")
    return Seen(role, spec, ", ".join(remarks))


def _spec(problem: AttentionProblem, role: str) -> TensorSpec:
    if role in _COUNTS:
        return TensorSpec.dense((problem.batch + _COUNTS[role],), DType.INT32)
    if role.startswith("score_mod_") and problem.score_mod is not None:
        return problem.score_mod.tensors[int(role.removeprefix("score_mod_"))]
    if role == "sink":
        wide = DType.FLOAT64 if problem.query.dtype is DType.FLOAT64 else DType.FLOAT32
        return TensorSpec.dense((problem.heads,), wide)
    if problem.paged is not None and role in ("page_table_k", "page_table_v"):
        paged = problem.paged
        return paged.key_table if role == "page_table_k" else paged.value_table
    spec = getattr(problem, role)
    assert isinstance(spec, TensorSpec), role
    return _slopes(spec) if role == "alibi_slopes" else spec


#: Tensors of one number a sequence, or one more.
_COUNTS = {
    "seq_lens_q": 0,
    "seq_lens_kv": 0,
    "cu_seqlens_q": 1,
    "cu_seqlens_kv": 1,
    "cu_seqlens_q_padded": 1,
    "cu_seqlens_kv_padded": 1,
}


def _packed_side(problem: AttentionProblem, role: str) -> Packed | None:
    if role in ("query", "output", "grad_output"):
        return problem.packed_q
    return problem.packed_kv if role in ("key", "value") else None


def _unpacked(spec: TensorSpec, packed: Packed) -> TensorSpec:
    """``[tokens, heads, head_dim]``, as the caller has it."""
    _, heads, _, head_dim = spec.shape
    _, per_head, per_token, per_element = spec.strides
    shape, strides = (packed.tokens, heads, head_dim), (per_token, per_head, per_element)
    return TensorSpec(shape, strides, spec.dtype, spec.alignment)


def _slopes(spec: TensorSpec) -> TensorSpec:
    """``[heads]`` or ``[batch, heads]``, as the caller has it."""
    axes = slice(1, 2) if spec.shape[0] == 1 else slice(2)
    return TensorSpec(spec.shape[axes], spec.strides[axes], spec.dtype, spec.alignment)


def _swapped(spec: TensorSpec) -> TensorSpec:
    """``[pages, page size, heads, head_dim]``, as the caller has it."""
    order = (0, 2, 1, 3)
    shape, strides = (tuple(axes[i] for i in order) for axes in (spec.shape, spec.strides))
    return TensorSpec(shape, strides, spec.dtype, spec.alignment)
