"""Performing tasks in this process or in several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from .tasks import Outcome, Task, failed, perform


def run(tasks: Sequence[Task], jobs: int, with_files: bool) -> Iterator[Outcome]:
    """The outcomes, in the order in which they come about.

    Args:
        tasks: what to do.
        jobs: how many processes do it; 1 is this one.
        with_files: whether outcomes carry the plans' files.
    """
    refused = [task for task in tasks if task.refusal]
    yield from (perform(task, with_files) for task in refused)
    rest = [task for task in tasks if not task.refusal]
    if jobs == 1 or len(rest) < 2:
        yield from (perform(task, with_files) for task in rest)
        return
    unfinished = dict.fromkeys(rest)
    for outcome in _in_processes(rest, min(jobs, len(rest)), with_files):
        del unfinished[outcome.task]
        yield outcome
    # A process ended, and took the others' work with it; one by one it shows which task does that.
    for task in unfinished:
        one = next(_in_processes([task], 1, with_files), None)
        yield one or failed(task, "the process that built it ended; SDPA_LOG=plans tells more")


def _in_processes(tasks: Sequence[Task], jobs: int, with_files: bool) -> Iterator[Outcome]:
    """The outcomes until a process ends by itself, which ends all of them."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # Not forked: cuDNN's threads and locks do not survive that.
    pool = ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn"))
    try:
        work = partial(perform, with_file=with_files)
        for future in as_completed([pool.submit(work, task) for task in tasks]):
            yield future.result()
    except BrokenProcessPool:
        return
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
