"""The comparisons that make up the benchmark."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import inputs as data
from .compare import Comparison, compare
from .inputs import Layout
from .peers.base import Call, JaxPeer, Peer, TorchPeer
from .peers.jax_nn import JaxNn
from .peers.native import NativeExecutor
from .peers.ours import OursInJax, OursInTorch
from .peers.pygraph import Pygraph
from .peers.torch_sdpa import TorchSdpa
from .rows import DIRECTIONS, HOST_ROW, Direction, Row
from .timing import Clock, Plan, Work, host_clock, wall_clock

#: Attentions in one program.
CHAIN = 10

#: Calls in a sample of the host's time: enough for microseconds, too few to fill a stream's queue.
_HOST_CALLS = 200

_TORCH_RIVALS = ("torch CUDNN", "pygraph")


@dataclass(frozen=True)
class Settings:
    """What a person can choose.

    Attributes:
        rows: see ``rows.ROWS``.
        plan: how much is measured.
        layout: of torch's operands.
    """

    rows: tuple[Row, ...]
    plan: Plan
    layout: Layout = "bhsd"


Suite = Callable[[Settings], Iterator[Comparison]]


def torch_device_time(settings: Settings) -> Iterator[Comparison]:
    """Forward and backward of every row, without the host."""
    from . import cuda

    peers = (
        OursInTorch(),
        NativeExecutor(),
        TorchSdpa("CUDNN_ATTENTION"),
        TorchSdpa("FLASH_ATTENTION"),
        Pygraph(),
    )
    for row in settings.rows:
        for direction in DIRECTIONS:
            with torch_stream():
                yield compare(
                    peers,
                    data.torch_inputs(row, settings.layout),
                    partial(_direction, direction),
                    cuda.clocks,
                    data.torch_difference,
                    settings.plan,
                    kind="device",
                    framework="torch",
                    what=direction,
                    rivals=_TORCH_RIVALS,
                    flops=row.flops(direction),
                )
            free_torch_memory()


def jax_wall_time(settings: Settings) -> Iterator[Comparison]:
    """Forward and backward of every row as a Python program sees it, dispatch included."""
    for row in settings.rows:
        for direction in DIRECTIONS:
            yield compare(
                (OursInJax(), JaxNn()),
                data.jax_inputs(row),
                partial(_direction, direction),
                jax_clocks,
                data.jax_difference,
                settings.plan,
                kind="wall",
                framework="jax",
                what=direction,
                rivals=("jax.nn cudnn",),
                flops=row.flops(direction),
            )
        gc.collect()


def jax_chain(settings: Settings) -> Iterator[Comparison]:
    """Attentions so small that launching them is what takes time, compiled into one program."""
    row = HOST_ROW
    yield compare(
        (OursInJax(), JaxNn()),
        data.jax_inputs(row),
        _chain,
        partial(jax_clocks, calls=_HOST_CALLS),
        data.jax_difference,
        settings.plan,
        kind="wall",
        framework="jax",
        what=f"chain of {CHAIN}",
        row=row.name,
        rivals=("jax.nn cudnn",),
        flops=None,
    )


def torch_host_time(settings: Settings) -> Iterator[Comparison]:
    """What a call costs the host: without gradients, and forward plus backward."""
    peers = (OursInTorch(), TorchSdpa("CUDNN_ATTENTION"), TorchSdpa("FLASH_ATTENTION"))
    kinds = {"no grad": partial(_direction, "forward"), "forward + backward": _training_step}
    for what, prepare in kinds.items():
        with torch_stream():
            yield compare(
                peers,
                data.torch_inputs(HOST_ROW, settings.layout),
                prepare,
                host_clocks,
                data.torch_difference,
                settings.plan,
                kind="host",
                framework="torch",
                what=what,
                rivals=("torch CUDNN", "torch FLASH"),
                flops=None,
            )


SUITES: Mapping[str, Suite] = {
    "torch": torch_device_time,
    "jax": jax_wall_time,
    "chain": jax_chain,
    "host": torch_host_time,
}

#: Without whom a suite means nothing.
SUBJECTS: Mapping[str, Peer] = {
    "torch": OursInTorch(),
    "jax": OursInJax(),
    "chain": OursInJax(),
    "host": OursInTorch(),
}


def _direction(direction: Direction, peer: Peer, inputs: Any) -> Call:
    return peer.forward(inputs) if direction == "forward" else peer.backward(inputs)


def _chain(peer: Peer, inputs: Any) -> Call:
    assert isinstance(peer, JaxPeer)
    return peer.chain(inputs, CHAIN)


def _training_step(peer: Peer, inputs: Any) -> Call:
    assert isinstance(peer, TorchPeer)
    return peer.training_step(inputs)


def torch_stream() -> AbstractContextManager[object]:
    """A stream of its own: work on the default stream cannot be captured."""
    import torch

    return torch.cuda.stream(torch.cuda.Stream()) if torch.cuda.is_available() else nullcontext()


def free_torch_memory() -> None:
    """Give back what a row took, so that the next one and JAX find room."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def jax_clocks(
    works: Mapping[str, Work], plan: Plan, calls: int | None = None
) -> tuple[dict[str, Clock], str, int]:
    """The host's clock until the last of many calls has finished."""
    import jax

    wait = jax.block_until_ready
    for work in works.values():
        wait(work(3))
    calls = calls or plan.launches(min(wall_clock(work, wait, 3)() for work in works.values()))
    clocks = {name: wall_clock(work, wait, calls) for name, work in works.items()}
    return clocks, "wall clock, dispatch included", calls


def host_clocks(
    works: Mapping[str, Work], plan: Plan, wait: Callable[[], object] | None = None
) -> tuple[dict[str, Clock], str, int]:
    """The host's clock while calls are issued."""
    if wait is None:
        import torch

        wait = torch.cuda.synchronize
    for work in works.values():
        work(10)
    clocks = {name: host_clock(work, wait, _HOST_CALLS) for name, work in works.items()}
    return clocks, "wall clock of calls without synchronization", _HOST_CALLS


def run(names: Sequence[str], settings: Settings) -> Iterator[Comparison]:
    """The comparisons of these suites, one by one, so that they can be kept as they come."""
    for name in names:
        yield from SUITES[name](settings)
