"""What a call costs the host: through the executor, and in C++ loops over cuDNN itself."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..rows import HOST_ROW
from ..suites import torch_stream
from ..timing import Clock, Plan, Work, host_clock, measure, median_of_medians, spread
from . import native, ubjson
from .figures import CannotRunError, Figure, Report, Target, microseconds
from .launch import Launch, launch_of, require_gpu

#: Calls of one sample: far fewer than a stream's queue takes (1024), so that none of them waits.
CALLS = 200

PLAN = Plan(rounds=5, samples=15)

RAW = "cuDNN, C++"
KEPT = "cuDNN, C++, pack kept"
FRONTEND_CPP = "frontend, C++"
FRONTEND = "frontend, Python"
OURS = "sdpa_ffi"
ADDRESSES = "sdpa_ffi, addresses"
ALLOCATING = "sdpa_ffi and torch.empty"
PUBLIC = "sdpa_torch"
PUBLIC_STATS = "sdpa_torch, return_lse"

#: What is promised of the host's time, as a multiple of ``RAW``.
TARGETS = {
    OURS: Target("<=", 1.35),
    ALLOCATING: Target("<=", 2.2),
    PUBLIC: Target("<=", 2.2),
    PUBLIC_STATS: Target("<=", 2.2),
}

#: Issues so many calls.
Issue = Callable[[int], object]


@dataclass(frozen=True)
class BackendPlan:
    """What cuDNN itself needs of a plan.

    Attributes:
        text: its JSON.
        uids: of the operands that a caller brings, ascending.
        constants: by uid, numbers of the graph that are handed over from host memory.
    """

    text: bytes
    uids: tuple[int, ...]
    constants: Mapping[int, bytes]


#: Of numbers in host memory, by their place in the frontend's variant; a float is hexadecimal.
_CONSTANTS: Mapping[int, Callable[[Any], bytes]] = {
    0: lambda value: struct.pack("<q", value),
    1: lambda value: struct.pack("<i", value),
    3: lambda value: int(value, 16).to_bytes(4, "little"),
}


def backend_plan(blob: bytes) -> BackendPlan:
    """cuDNN's own part of the frontend's serialized graph.

    Raises:
        ValueError: the frontend does more in a call than to hand operands to cuDNN.
    """
    graph = ubjson.loads(blob)
    more = ("workspace_modifications", "variant_pack_replacements", "fe_workspace_size")
    if extra := [name for name in more if graph.get(name)]:
        raise ValueError(f"the graph has {', '.join(extra)}, which a raw loop leaves out")
    constants = {
        int(uid): _constant(number["index"], number["value"])
        for uid, number in (graph.get("pass_by_values") or {}).items()
    }
    uids = tuple(sorted(set(graph["variant_pack_uids"]) - set(constants)))
    return BackendPlan(graph["cudnn_backend_data"].encode(), uids, constants)


def _constant(kind: int, value: Any) -> bytes:
    if kind not in _CONSTANTS:
        raise ValueError(f"the graph has a constant of kind {kind}, which a raw loop cannot read")
    return _CONSTANTS[kind](value)


def figures_of(samples: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Every peer's time over that of cuDNN's own execute."""
    base = median_of_medians(samples[RAW])
    return tuple(
        Figure(
            name=f"{name} / {RAW}",
            value=(time := median_of_medians(rounds)) / base,
            of=f"{microseconds(time)} / {microseconds(base)}",
            target=TARGETS.get(name),
        )
        for name, rounds in samples.items()
        if name != RAW
    )


def run(folder: Path, *, frontend_cpp: bool = False) -> Report:
    """Measure.

    Args:
        folder: where the C++ loops are compiled.
        frontend_cpp: measure the frontend's execute in C++ too.
    """
    require_gpu()
    import torch

    libraries = {RAW: native.compiled(native.RAW, folder)}
    if frontend_cpp:
        libraries[FRONTEND_CPP] = native.compiled(native.FRONTEND, folder)
    with torch_stream(), torch.no_grad():
        launch = launch_of(HOST_ROW, training=True)
        stream = torch.cuda.current_stream().cuda_stream
        peers = _cpp(libraries, launch, stream) | _python(launch, stream)
        faults = _wrong(peers, launch)
        clocks = {name: _clock(issue, torch.cuda.synchronize) for name, issue in peers.items()}
        samples = measure(clocks, PLAN)
        torch.cuda.synchronize()
    noise = {name: spread(rounds) for name, rounds in samples.items()}
    data = {"calls": CALLS, "samples_ms": samples, "noise": noise, "row": HOST_ROW.name}
    return Report(figures_of(samples), data, faults)


def _clock(issue: Issue, wait: Callable[[], object]) -> Clock:
    """Milliseconds of the host for one call; warm afterwards."""
    issue(CALLS)
    whole = host_clock(Work(partial(issue, CALLS)), wait, 1)
    return lambda: whole() / CALLS


def _cpp(libraries: Mapping[str, Path], launch: Launch, stream: int) -> dict[str, Issue]:
    from sdpa_ffi import find_cudnn

    backend = backend_plan(launch.plan.blob)
    if backend.uids != launch.loaded.uids:
        raise ValueError(f"the graph takes {backend.uids}, the executor {launch.loaded.uids}")
    # In the order of the uids, of which the scale has the largest.
    addresses = [*(tensor.data_ptr() for tensor in launch.operands), _kept(_SCALE)]
    operands = list(zip(backend.uids, addresses, strict=True))
    constants = [(uid, _kept(number)) for uid, number in backend.constants.items()]
    given = {
        RAW: (backend.text, [*operands, *constants]),
        FRONTEND_CPP: (launch.plan.blob, operands),
    }
    libcudnn = find_cudnn()
    if libcudnn is None:
        raise CannotRunError("cuDNN's library was not found")
    found: dict[str, Issue] = {}
    for name, library in libraries.items():
        workspace = launch.workspace.data_ptr()
        loop = native.Loop(library, libcudnn, *given[name], workspace, stream)
        found[name] = loop.execute
        if name == RAW:
            found[KEPT] = loop.execute_again
    return found


_SCALE = struct.pack("<f", HOST_ROW.scale)
_numbers: list[Any] = []  # in host memory; loops read them until the process ends


def _kept(number: bytes) -> int:
    """The address of a number that stays."""
    _numbers.append(ctypes.create_string_buffer(number, len(number)))
    return ctypes.addressof(_numbers[-1])


def _python(launch: Launch, stream: int) -> dict[str, Issue]:
    import sdpa_torch

    attend = partial(
        sdpa_torch.scaled_dot_product_attention, *launch.inputs.operands, backend="cudnn"
    )
    calls = {
        OURS: launch.on(stream),
        ADDRESSES: _with_addresses(launch, stream),
        ALLOCATING: _allocating(launch, stream),
        PUBLIC: attend,
        PUBLIC_STATS: partial(attend, return_lse=True),
        FRONTEND: _frontend(launch),
    }
    return {name: _repeated(call) for name, call in calls.items()}


def _repeated(call: Callable[[], object]) -> Issue:
    def issue(calls: int) -> None:
        for _ in range(calls):
            call()

    return issue


def _with_addresses(launch: Launch, stream: int) -> Callable[[], None]:
    execute, scalars = launch.loaded.execute, launch.scalars
    operands = tuple(tensor.data_ptr() for tensor in launch.operands)
    workspace = launch.workspace.data_ptr()
    return lambda: execute(operands, scalars, workspace, stream)


def _allocating(launch: Launch, stream: int) -> Callable[[], None]:
    """Output, statistics and workspace are new in each call."""
    import torch

    execute, scalars, empty = launch.loaded.execute, launch.scalars, torch.empty
    bytes_ = launch.workspace.numel()
    given = launch.inputs.operands
    results = launch.operands[len(given) :]
    assert results[0] is launch.tensors["output"], "it has a lower uid than the statistics"
    output, stats = (tuple(tensor.shape) for tensor in results)

    def call() -> None:
        o = empty(output, dtype=torch.bfloat16, device="cuda")
        lse = empty(stats, dtype=torch.float32, device="cuda")
        workspace = empty(bytes_, dtype=torch.uint8, device="cuda")
        execute((*given, o, lse), scalars, workspace, stream)

    return call


def _frontend(launch: Launch) -> Callable[[], None]:
    """The frontend's Python: its own graph of the same problem, tensors allocated before."""
    import cudnn
    import torch

    from ..peers.pygraph import forward_graph

    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    graph, nodes = forward_graph(cudnn, launch.inputs, with_stats=True, handle=handle)
    operands = {node: launch.tensors[role] for role, node in nodes.items()}
    workspace = torch.empty(max(16, graph.get_workspace_size()), dtype=torch.uint8, device="cuda")
    return lambda: graph.execute(operands, workspace, handle=handle)


def _wrong(peers: Mapping[str, Issue], launch: Launch) -> list[str]:
    """Peers that write to the launch's tensors and do not compute attention there."""
    import torch

    query, key, value = (x.float() for x in launch.inputs.operands)
    wanted = torch.softmax(query @ key.transpose(-1, -2) * HOST_ROW.scale, -1) @ value
    output = launch.tensors["output"]
    faults = []
    for name, issue in peers.items():
        if name in (ALLOCATING, PUBLIC, PUBLIC_STATS):
            continue  # results of their own
        output.fill_(float("nan"))
        issue(1)
        torch.cuda.synchronize()
        difference = float((output.float() - wanted).norm() / wanted.norm())
        if not difference <= 0.02:
            faults.append(f"{name} differs from attention by {difference:.2g}")
    return faults
