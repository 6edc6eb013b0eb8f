"""Device time of torch code: CUDA events around replays of a CUDA graph, or around plain calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch

from .timing import Clock, Plan, Work


def clocks(works: Mapping[str, Work], plan: Plan) -> tuple[dict[str, Clock], str, int]:
    """A clock for each peer, the method in words, and the calls in one sample.

    A captured graph leaves the host out of the measurement, for all peers alike: if one of them
    cannot be captured, all are timed by plain calls. Call it on the stream that the works run on,
    which must not be the default stream.
    """
    launches = plan.launches(min(_estimate(work) for work in works.values()))
    runs: dict[str, Callable[[], object]] = {}
    method = "CUDA events around a CUDA graph"
    for name, work in works.items():
        try:
            runs[name] = _captured(work, launches).replay
        except RuntimeError as error:
            torch.cuda.synchronize()
            reason = str(error).partition("\n")[0]
            method = f"CUDA events around plain calls ({name} cannot be captured: {reason})"
            runs = {name: partial(work, launches) for name, work in works.items()}
            break
    return {name: _clock(run, launches) for name, run in runs.items()}, method, launches


def _estimate(work: Work) -> float:
    """Milliseconds of a call, which is thereby warm."""
    work(3)
    return _clock(partial(work, 3), 3)()


def _captured(work: Work, launches: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        work(launches)
    graph.replay()
    torch.cuda.synchronize()
    return graph


def _clock(run: Callable[[], object], launches: int) -> Clock:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample() -> float:
        run()  # untimed: clock rate and caches then depend on this call, not on the one before
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / launches

    return sample
