"""An attention problem in its caller's words: its tensors, its features, what lowering adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from .cudnn.dimensions import declared, pads_query
from .cudnn.known_bad import Remedy, faults
from .device import DeviceSpec
from .dtypes import DType
from .paged import Paged
from .problem import AttentionProblem, Direction
from .ragged import Packed
from .tensor import VECTOR_BYTES, TensorSpec

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


# -------------------------------------------------------------------------------- features


def features(problem: AttentionProblem) -> dict[str, str]:
    """Every field of the problem that is no tensor and not its default, in words.

    Taken from the fields of the class, so that a new one is told without being listed.
    """
    return {
        field.name: _WORDS.get(field.name, _plainly)(problem, value)
        for field in fields(problem)
        if not isinstance(value := getattr(problem, field.name), TensorSpec)
        and (field.default is MISSING or value != field.default)
    }


def _plainly(problem: AttentionProblem, value: object) -> str:
    del problem
    return "yes" if value is True else str(value)


def _packed_words(length: int, problem: AttentionProblem, packed: Packed) -> str:
    where = "with gaps between them" if packed.gaps else "one after another"
    return f"{problem.batch} sequences of at most {length} tokens, {where}, in {packed.tokens} rows"


def _paged_words(problem: AttentionProblem, paged: Paged) -> str:
    return f"pages of {problem.key.shape[2]} tokens, at most {paged.tokens} tokens in a sequence"


def _lengths_words(problem: AttentionProblem, value: object) -> str:
    del problem, value
    return "each sequence has a length of its own"


#: Fields whose value says too little by itself.
_WORDS: Mapping[str, Callable[[AttentionProblem, Any], str]] = {
    "seq_lens_q": _lengths_words,
    "seq_lens_kv": _lengths_words,
    "packed_q": lambda problem, packed: _packed_words(problem.tokens_q, problem, packed),
    "packed_kv": lambda problem, packed: _packed_words(problem.tokens_kv, problem, packed),
    "paged": _paged_words,
    "score_mod": lambda _, score_mod: (
        f"a function of the logits with {len(score_mod.tensors)} tensors and "
        f"{score_mod.scalars} numbers"
    ),
}


def summary(problem: AttentionProblem, direction: Direction) -> str:
    """A problem on one line, for logs: ``forward bfloat16 query[2, 8, 128, 64] ...``."""
    shapes = (f"{seen.name}{list(seen.spec.shape)}" for seen in tensors(problem))
    told = (f"{name}={text}" for name, text in features(problem).items())
    return " ".join((direction, problem.query.dtype, *shapes, *told))


# ----------------------------------------------------------------------------------- notes


def notes(
    problem: AttentionProblem,
    device: DeviceSpec,
    directions: Iterable[Direction] = tuple(Direction),
) -> tuple[str, ...]:
    """What running a problem with cuDNN takes besides the kernel: copies, and ways round faults.

    Args:
        directions: those that cuDNN runs; the backward pass counts only if there is one.
    """
    directions = tuple(directions)
    told: list[str] = [*_copies(problem), *_cleared(problem, directions)]
    for direction in directions:
        if direction is Direction.BACKWARD and not problem.training:
            continue
        for row in faults(declared(problem, device, direction), device, direction):
            if row.remedy is not Remedy.REFUSE:
                done = _REMEDIES[row.remedy]
                told.append(f"{direction}: {done}, because of a fault: {row.name}")
    return tuple(dict.fromkeys(told))


_REMEDIES: Mapping[Remedy, str] = {
    Remedy.FULL_LENGTHS: "cuDNN is given the full length of every sequence",
    Remedy.NO_WORKSPACE: "only plans that need next to no workspace are used",
    Remedy.FIX_EMPTY: "the results of sequences without keys are written once more",
}


def _copies(problem: AttentionProblem) -> Iterator[str]:
    bias = problem.bias
    if bias is not None and bias.dtype == problem.query.dtype and not problem.bias_grad:
        yield f"bias: a boolean mask becomes one of 0 and -inf, {bias.nbytes:,} bytes each call"
    if pads_query(problem):
        yield "query: copied with a second row, which a sink needs"


def _cleared(problem: AttentionProblem, directions: tuple[Direction, ...]) -> Iterator[str]:
    """Dense operands with lengths; neither packed operands nor pages are copied."""
    copies = []
    if problem.seq_lens_kv and problem.packed_kv is None and problem.paged is None:
        copies.append(("key, value", problem.key.nbytes + problem.value.nbytes, "each pass"))
    is_trained = problem.training and Direction.BACKWARD in directions
    if problem.seq_lens_q and problem.packed_q is None and is_trained:
        size = problem.query.nbytes + problem.output.nbytes
        copies.append(("query, grad_output", size, "in the backward pass"))
    for names, size, when in copies:
        yield (
            f"{names}: rows past a sequence's length are zeroed in copies, {size:,} bytes {when}; "
            f"slack_is_finite=True saves them"
        )
