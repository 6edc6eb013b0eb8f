"""Processes that write to one store, forked from one that has no threads.

python -m store_faults.writers kill FOLDER COUNT
python -m store_faults.writers fill FOLDER COUNT
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from sdpa_core import Plan
from sdpa_core.store import Store

from .plans import a_plan, numbered, with_blob_of

#: Long enough for a disk to take its time over one.
BLOB_BYTES = 100_000
#: Plans that processes which fill a store all want.
FILLED = 40


def forked(work: Callable[[], None]) -> int:
    """A child process that does this work and ends."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def kill(folder: Path, count: int) -> None:
    """So many processes, one after another, each killed at some moment of its writes."""
    store, plan, rng = Store(folder), a_plan(BLOB_BYTES), random.Random(0)

    def write(number: int, ready: int) -> None:
        for step in itertools.count():
            each = numbered(plan, "kill", number, step)
            if step == 0:
                os.write(ready, b"!")
            store.put(each)

    for number in range(count):
        wait, ready = os.pipe()
        child = forked(lambda number=number, ready=ready: write(number, ready))
        os.close(ready)
        if os.read(wait, 1) != b"!":
            sys.exit("a writer ended by itself")
        time.sleep(rng.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit("a writer ended by itself")
        os.close(wait)


def fill(folder: Path, count: int) -> None:
    """So many processes that want the same plans at once; prints what each of them got."""
    plan = a_plan(BLOB_BYTES)
    wait, start = os.pipe()

    def work(number: int) -> None:
        os.close(start)
        os.read(wait, 1)  # until the parent closes its end
        store, used = Store(folder), {}
        for step in range(FILLED):
            used[step] = sha256(_got(store, plan, step, number).container).hexdigest()
        (folder / f"{number}.json").write_text(json.dumps(used))

    children = [forked(lambda number=number: work(number)) for number in range(count)]
    os.close(start)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps({"codes": codes}))


def _got(store: Store, plan: Plan, step: int, number: int) -> Plan:
    """What the plan cache does: look, else build (a blob of this process's own) and keep."""
    wanted = numbered(plan, "fill", step)
    return store.get(wanted.expected) or store.put(with_blob_of(wanted, number, step))


if __name__ == "__main__":
    {"kill": kill, "fill": fill}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
