"""CUDA graphs, streams and threads: the calls go where PyTorch's own would."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from adapters import Options, assert_right, run_torch, torch_arguments, torch_bits, torch_tensors

import sdpa_torch
from sdpa_core.mask import Band
from sdpa_core.testing import Case
from sdpa_core.testing.conformance import RESULTS

pytestmark = pytest.mark.gpu

CASE = Case("capture", 2, 4, 2, 256, 256, 64, 64, band=Band.causal(), layout="bshd")


def step(leaves, incoming, case):
    """Forward and backward; the tensors that a replay fills again."""
    output, lse = sdpa_torch.scaled_dot_product_attention(
        *leaves, **torch_arguments(case), return_lse=True, backend="cudnn"
    )
    return output, lse, *torch.autograd.grad(output, leaves, incoming)


def as_bits(results):
    return {name: torch_bits(tensor) for name, tensor in zip(RESULTS, results, strict=True)}


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("tokens", [256, 320], ids=["full tiles", "half a tile"])
def test_capture_and_replay(warm, tokens):
    """Cold: this process has never seen the problem, so its plan is made during the capture."""
    case = replace(CASE, tokens_q=tokens, tokens_kv=tokens, head_dim=64 if warm else 72)
    *operands, incoming = torch_tensors(case, case.arrays(), "cuda")
    static = [torch.zeros_like(x) for x in operands]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        leaves = [x.requires_grad_() for x in static]
        if warm:
            step(leaves, incoming, case)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            results = step(leaves, incoming, case)
        with torch.no_grad():
            for tensor in results:
                tensor.fill_(float("nan"))
            for place, operand in zip(static, operands, strict=True):
                place.copy_(operand)
        for _ in range(3):
            graph.replay()
    torch.cuda.synchronize()
    assert_right(as_bits(results), case)


def test_numbers_of_the_host_are_there_at_each_replay():
    """ALiBi's slopes are copied to the device by each launch.

    cudnn-frontend 1.28 copies from memory that it frees at once; the executor does it itself.
    """
    query, key, value = torch.randn(3, 2, 8, 192, 64, device="cuda", dtype=torch.bfloat16)

    def attend():
        return sdpa_torch.scaled_dot_product_attention(
            query, key, value, is_causal=True, alibi=True, backend="cudnn"
        )

    with torch.no_grad():
        expected = attend()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = attend()
        for _ in range(5):
            reused = [torch.full((64,), float(i)) for i in range(256)]  # what was freed, if it was
            replayed.zero_()
            graph.replay()
            assert torch.equal(replayed, expected)
            del reused


def test_eager_calls_after_a_cold_capture():
    """What was allocated for the graph is not used by others once the graph is gone."""
    case = replace(CASE, name="after", tokens_q=192, tokens_kv=192, head_dim=80, band=Band())
    *operands, incoming = torch_tensors(case, case.arrays(), "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        leaves = [x.requires_grad_() for x in operands]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            step(leaves, incoming, case)
    torch.cuda.synchronize()
    del graph
    torch.cuda.empty_cache()
    torch.full((1 << 26,), -1, dtype=torch.int32, device="cuda")  # into what was freed
    assert_right(run_torch(case, "cuda"), case)


def test_a_stream_that_is_not_the_default():
    """The call waits for its own stream alone, and its results are ready there."""
    *operands, incoming = torch_tensors(CASE, CASE.arrays(), "cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = [torch.zeros_like(x) for x in operands]
        torch.cuda._sleep(50_000_000)  # tens of milliseconds: a call on another stream is too early
        for place, operand in zip(late, operands, strict=True):
            place.copy_(operand)
        results = step([x.requires_grad_() for x in late], incoming, CASE)
        found = as_bits(results)
    assert_right(found, CASE)


def test_threads_on_streams_of_their_own():
    """Different problems at once, some the first of their kind in the process."""
    cases = [
        replace(CASE, name=f"thread_{i}", heads=heads, head_dim=head_dim, head_dim_v=head_dim)
        for i, (heads, head_dim) in enumerate([(4, 64), (2, 88), (4, 64), (8, 104)])
    ]
    failures = []

    def work(case):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(10):
                    assert_right(run_torch(case, "cuda", Options()), case)
        except Exception as error:  # noqa: BLE001 (reported by the main thread)
            failures.append(f"{case.name}: {error}")

    threads = [threading.Thread(target=work, args=(case,)) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_two_threads_share_a_plan_that_neither_has():
    case = replace(CASE, name="shared", head_dim=112, head_dim_v=112)
    found, barrier = [], threading.Barrier(2)

    def work():
        barrier.wait()
        found.append(run_torch(case, "cuda"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    for bits in found:
        assert_right(bits, case)
