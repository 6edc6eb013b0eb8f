"""Rules about element types, head dims, tokens, and how operands lie in memory."""

from __future__ import annotations

from collections.abc import Mapping

from ...device import DeviceSpec, format_version
from ...dtypes import DType
from ...problem import AttentionProblem, Direction
from ...reasons import Unsupported
from ...tensor import VECTOR_BYTES, TensorSpec
from ..dimensions import declared
from .rule import Reasons, older

#: (head_dim, head_dim of value) beyond the common ones, and the first cuDNN that has them.
Pairs = Mapping[tuple[int, int], int]


def dtype(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """cuDNN plans float32 too, but forward only: that is left to the reference."""
    if problem.query.dtype not in (DType.FLOAT16, DType.BFLOAT16):
        yield Unsupported(
            "query.dtype", problem.query.dtype, "float16 or bfloat16", "cast query, key and value"
        )


def head_dims(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Forward there is no upper limit since cuDNN 9.10.2 (TransformerEngine: 9.10.2, any)."""
    for name, spec in (("query", problem.query), ("value", problem.value)):
        if not _is_head_dim(spec):
            yield Unsupported(
                f"{name}.shape[-1]",
                spec.shape[-1],
                "a positive multiple of 8",
                "pad the head dimension",
            )


def _is_head_dim(spec: TensorSpec) -> bool:
    return spec.shape[-1] > 0 and spec.shape[-1] % 8 == 0


def backward_head_dims(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Reasons:
    """Hopper's backward kernels reach 256; the others stop at 128, with exceptions on sm10x.

    No cuDNN up to 9.28 has more. TransformerEngine refuses pairs of unequal head dims of 128 and
    more on Hopper since 9.11 as wrong; on an H200 with 9.19 all seven that were tried are right.
    """
    if direction is Direction.FORWARD:
        return
    pair = (problem.query.shape[-1], problem.value.shape[-1])
    limit = 256 if device.sm // 10 == 9 else 128
    exceptions = _blackwell_pairs(problem) if device.sm // 10 == 10 else {}
    since = exceptions.get(pair)
    if max(pair) <= limit or (since is not None and not older(device, since)):
        return
    allowed = [f"{qk} and {v} (cuDNN >= {format_version(n)})" for (qk, v), n in exceptions.items()]
    need = ", or ".join([f"at most {limit} in training", *allowed])
    unknown = "" if since else "; no cuDNN up to 9.28 has more"
    yield Unsupported(
        "query.shape[-1], value.shape[-1]",
        f"{pair[0]}, {pair[1]}",
        f"{need} on compute capability {device.sm / 10}{unknown}",
    )


def _blackwell_pairs(problem: AttentionProblem) -> Pairs:
    """cudnn-frontend 1.32; 256 with packed sequences: TransformerEngine."""
    return {(192, 128): 91100, (256, 256): 92500 if problem.is_packed else 92300}


def single_token_backward(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Reasons:
    """One query and one key, as the graph declares them: packed sequences count as longer."""
    if direction is Direction.FORWARD:
        return
    graph = declared(problem, device, direction)
    if graph.tokens_q == graph.tokens_kv == 1:
        yield Unsupported("query and key tokens", "1 and 1", "more than one token in training")


def memory(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Unit last stride, and addresses and strides that are multiples of 16 bytes.

    Where the head_dim is refused nothing is said of them: padding it makes a tensor that has them,
    and a copy would not.
    """
    tensors = {"query": problem.query, "key": problem.key, "value": problem.value}
    if direction is Direction.BACKWARD:
        tensors["grad_output"] = problem.incoming_gradient()
    for name, spec in tensors.items():
        yield from _memory(name, spec)


def _memory(name: str, spec: TensorSpec) -> Reasons:
    copy = f"copy it: {name}.contiguous()"
    if not _is_head_dim(spec):
        return
    if spec.strides[-1] != 1:
        yield Unsupported(f"{name}.stride(-1)", spec.strides[-1], "1", copy)
    step = VECTOR_BYTES // spec.dtype.itemsize
    if any(stride % step or stride < 0 for stride in spec.strides[:-1]):
        yield Unsupported(
            f"{name}.stride()", list(spec.strides), f"multiples of {VECTOR_BYTES} bytes", copy
        )
    if spec.alignment < VECTOR_BYTES:
        yield Unsupported(
            f"address of {name}",
            f"a multiple of {spec.alignment} bytes",
            f"a multiple of {VECTOR_BYTES} bytes",
            copy,
        )
