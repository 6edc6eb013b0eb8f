"""One cold process: imports a framework, waits for its turn, then times the first result.

``python -m bench.executor.child torch``. It prints ``ready`` when the framework is there and its
device is initialized, reads a line from stdin, and prints what it measured as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..peers.base import no_cuda_in_jax, no_cuda_in_torch
from .figures import CannotRunError

#: Shape of query, key, value and the output's gradient; torch's [B, H, S, D].
BATCH, HEADS, TOKENS, HEAD_DIM = 2, 16, 1024, 128

#: Imports our package, computes, and waits; the seconds until the import was done.
Steps = Callable[[], float]


def torch_steps() -> Steps:
    import torch

    _require(no_cuda_in_torch())

    shape = (BATCH, HEADS, TOKENS, HEAD_DIM)
    tensors = [torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(4)]
    leaves = [tensor.requires_grad_() for tensor in tensors[:3]]
    torch.cuda.synchronize()

    def steps() -> float:
        start = time.perf_counter()
        import sdpa_torch

        imported = time.perf_counter() - start
        output = sdpa_torch.scaled_dot_product_attention(*leaves, is_causal=True, backend="cudnn")
        torch.autograd.grad(output, leaves, tensors[3])
        torch.cuda.synchronize()
        return imported

    return steps


def jax_steps() -> Steps:
    import jax
    import jax.numpy as jnp

    _require(no_cuda_in_jax())
    shape = (BATCH, TOKENS, HEADS, HEAD_DIM)
    arrays = [
        jax.random.normal(key, shape, jnp.bfloat16)
        for key in jax.random.split(jax.random.key(0), 4)
    ]
    jax.block_until_ready(arrays)

    def steps() -> float:
        start = time.perf_counter()
        import sdpa_jax

        imported = time.perf_counter() - start

        def both(query: Any, key: Any, value: Any, incoming: Any) -> Any:
            def attend(*operands: Any) -> Any:
                return sdpa_jax.dot_product_attention(
                    *operands, is_causal=True, implementation="cudnn"
                )

            output, pull = jax.vjp(attend, query, key, value)
            return output, pull(incoming)

        jax.block_until_ready(jax.jit(both)(*arrays))
        return imported

    return steps


def _require(reason: str | None) -> None:
    if reason:
        raise CannotRunError(reason)


STEPS: dict[str, Callable[[], Steps]] = {"torch": torch_steps, "jax": jax_steps}


def _compilation_events() -> Counter[str]:
    """Counts of what JAX's persistent cache reports from now on."""
    import jax

    events: Counter[str] = Counter()

    def listen(event: str, **_: Any) -> None:
        if event.startswith("/jax/compilation_cache/"):
            events[event.rpartition("/")[2]] += 1

    jax.monitoring.register_event_listener(listen)
    return events


def main(framework: str) -> int:
    steps = STEPS[framework]()
    events = _compilation_events() if framework == "jax" else Counter[str]()
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 1  # whoever started this is gone
    start = time.perf_counter()
    imported = steps()
    seconds = time.perf_counter() - start
    from sdpa_core.cudnn.probe import cache

    print(
        json.dumps(
            {
                "seconds": seconds,
                "import_seconds": imported,
                "counters": dict(cache.counters),
                "stages": dict(cache.seconds),
                "frontend_imported": "cudnn" in sys.modules,
                "dynamo_imported": "torch._dynamo" in sys.modules,
                "events": dict(events),
            }
        ),
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
