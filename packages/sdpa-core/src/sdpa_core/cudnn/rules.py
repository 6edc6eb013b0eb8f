"""What cuDNN's 16-bit attention takes, as rules that need neither cuDNN nor a GPU.

Each rule yields its reasons; all of them are asked, so that a caller sees everything at once.
cuDNN itself has the last word (``probe``). Sources: the checks of nvidia-cudnn-frontend 1.32 and
its operation documents; cudnn-frontend issue 1571 and pytorch PR 194818 for alignment.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..device import DeviceSpec, format_version
from ..dtypes import DType
from ..problem import AttentionProblem, Direction
from ..reasons import Unsupported
from ..tensor import VECTOR_BYTES, TensorSpec
from .known_bad import Remedy, faults

#: The first cuDNN that plans from a description of the device.
MINIMUM_CUDNN = 90800
MAX_HEAD_DIM = 256

Reasons = Iterator[Unsupported]


def platform(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    if device.platform != "cuda":
        yield Unsupported("device", device.name, "an NVIDIA GPU")
    elif device.sm < 80:
        yield Unsupported("compute capability", device.sm / 10, ">= 8.0 (Ampere)")


def version(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    if device.cudnn_version is not None and device.cudnn_version < MINIMUM_CUDNN:
        yield Unsupported(
            "cuDNN",
            format_version(device.cudnn_version),
            f">= {format_version(MINIMUM_CUDNN)}",
            "pip install -U nvidia-cudnn-cu13",
        )


def released_faults(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    for row in faults(problem, device, direction):
        if row.remedy is Remedy.REFUSE and device.cudnn_version is not None:
            yield Unsupported(
                "cuDNN",
                format_version(device.cudnn_version),
                f"a version without this fault: {row.name} ({row.source})",
                "pip install -U nvidia-cudnn-cu13",
            )


def dtype(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    if problem.query.dtype not in (DType.FLOAT16, DType.BFLOAT16):
        yield Unsupported(
            "query.dtype", problem.query.dtype, "float16 or bfloat16", "cast query, key and value"
        )


def head_dims(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    for name, spec in (("query", problem.query), ("value", problem.value)):
        head_dim = spec.shape[-1]
        if head_dim % 8 or head_dim == 0:
            yield Unsupported(
                f"{name}.shape[-1]", head_dim, "a positive multiple of 8", "pad the head dimension"
            )
        if head_dim > MAX_HEAD_DIM:
            yield Unsupported(f"{name}.shape[-1]", head_dim, f"at most {MAX_HEAD_DIM}")


def backward_head_dims(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Reasons:
    """Hopper's backward kernels reach 256; the others stop at 128, with exceptions on sm10x."""
    pair = (problem.query.shape[-1], problem.value.shape[-1])
    if direction is Direction.FORWARD or device.sm // 10 == 9 or max(pair) <= 128:
        return
    exceptions = _BLACKWELL_PAIRS if device.sm // 10 == 10 else {}
    since = exceptions.get(pair)
    if since is not None and (device.cudnn_version or since) >= since:
        return
    allowed = [f"{qk} and {v} (cuDNN >= {format_version(n)})" for (qk, v), n in exceptions.items()]
    yield Unsupported(
        "query.shape[-1], value.shape[-1]",
        f"{pair[0]}, {pair[1]}",
        ", or ".join(["at most 128 in training", *allowed])
        + f" on compute capability {device.sm / 10}",
    )


#: (head_dim, head_dim of value) whose backward pass cuDNN has on compute capability 10.x.
_BLACKWELL_PAIRS = {(192, 128): 91100, (256, 256): 92300}


def single_token_backward(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Reasons:
    if direction is Direction.BACKWARD and problem.query.shape[2] == problem.key.shape[2] == 1:
        yield Unsupported("query and key tokens", "1 and 1", "more than one token in training")


def memory(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Unit last stride, and addresses and strides that are multiples of 16 bytes."""
    tensors = {"query": problem.query, "key": problem.key, "value": problem.value}
    if direction is Direction.BACKWARD:
        tensors["grad_output"] = problem.incoming_gradient()
    for name, spec in tensors.items():
        yield from _memory(name, spec)


def _memory(name: str, spec: TensorSpec) -> Reasons:
    copy = f"copy it: {name}.contiguous()"
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


RULES = (
    platform,
    version,
    released_faults,
    dtype,
    head_dims,
    backward_head_dims,
    single_token_backward,
    memory,
)


def reasons(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> tuple[Unsupported, ...]:
    """Every reason of every rule. On another platform than CUDA that is the only reason."""
    wrong_platform = tuple(platform(problem, device, direction))
    if wrong_platform:
        return wrong_platform
    return tuple(reason for rule in RULES for reason in rule(problem, device, direction))
