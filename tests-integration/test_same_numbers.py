"""PyTorch and JAX give the same numbers, because they run the same plans on the same operands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import jax
import numpy as np
import pytest
from adapters import (
    Options,
    as_numbers,
    assert_right,
    assert_same_bits,
    distance,
    largest_distance,
    run_jax,
    run_torch,
)

import sdpa_jax.cudnn
import sdpa_jax.testing
import sdpa_torch.attend
import sdpa_torch.cudnn
import sdpa_torch.testing
from sdpa_core import DType
from sdpa_core.mask import Alignment, Band
from sdpa_core.testing import CASES, Case

DETERMINISTIC = Options(deterministic=True)

#: What both frameworks can be asked for in equal layouts: the axes in which problems differ.
_GRID = tuple(
    Case(
        f"{dtype}_{name}_{heads}_{heads_kv}_{tokens}_{head_dim}",
        2,
        heads,
        heads_kv,
        tokens,
        tokens,
        head_dim,
        head_dim,
        dtype,
        band,
        layout="bshd",
    )
    for dtype in (DType.BFLOAT16, DType.FLOAT16)
    for name, band in (("full", Band()), ("causal", Band.causal()))
    for heads, heads_kv, tokens, head_dim in ((4, 4, 256, 64), (8, 2, 320, 128))
)
_OTHERS = (
    Case("bottom_right", 2, 4, 2, 96, 200, 64, 64, band=Band.causal(Alignment.BOTTOM_RIGHT)),
    Case("more_queries", 2, 4, 2, 200, 96, 64, 64, band=Band.causal(Alignment.BOTTOM_RIGHT)),
    Case("head_dim_192_128", 2, 4, 2, 130, 130, 192, 128, band=Band.causal()),
    Case("scale", 2, 4, 4, 128, 128, 64, 64, scale=0.3),
    Case("half_a_key_tile", 2, 4, 2, 192, 192, 128, 128, logits="very_negative"),
    Case("decode", 2, 8, 2, 1, 200, 128, 128, band=Band.causal(Alignment.BOTTOM_RIGHT)),
)
SAME_PROBLEMS = _GRID + tuple(replace(case, layout="bshd") for case in _OTHERS)


def by_name(case: Case) -> str:
    return case.name


@pytest.mark.gpu
@pytest.mark.parametrize("case", SAME_PROBLEMS, ids=by_name)
class TestOnTheGpu:
    def test_forward_is_bitwise_equal(self, case):
        options = Options(training=False)
        ours = run_torch(case, "cuda", options)
        assert_right(ours, case)
        assert_same_bits(ours, run_jax(case, options))

    def test_gradients_are_bitwise_equal_if_deterministic(self, case):
        ours = run_torch(case, "cuda", DETERMINISTIC)
        assert_right(ours, case)
        assert_same_bits(ours, run_jax(case, DETERMINISTIC))
        assert_same_bits(ours, run_torch(case, "cuda", DETERMINISTIC))

    def test_gradients_differ_no_more_than_from_run_to_run(self, case):
        """The order of atomic additions is all that may differ."""
        torch_runs = [run_torch(case, "cuda") for _ in range(4)]
        jax_runs = [run_jax(case) for _ in range(4)]
        limit = largest_distance(torch_runs, case)
        closest = [distance(a, b, case) for a in torch_runs for b in jax_runs]
        for name, most in limit.items():
            found = min(each[name] for each in closest)
            assert found <= most, f"{name}: torch and JAX differ by {found}, torch's runs by {most}"


@contextmanager
def recorded(*runtimes: type) -> Iterator[list[list[bytes]]]:
    """The containers of all plans that these runtimes are asked for, a list for each of them."""
    found: list[list[bytes]] = [[] for _ in runtimes]
    with pytest.MonkeyPatch.context() as patch:
        for runtime, containers in zip(runtimes, found, strict=True):
            plan = runtime.plan

            def recording(self, *arguments, plan=plan, containers=containers):
                made = plan(self, *arguments)
                containers.append(made.container)
                return made

            patch.setattr(runtime, "plan", recording)
        sdpa_torch.attend._prepare.cache_clear()
        jax.clear_caches()
        yield found


def assert_same_plans(found: list[list[bytes]]) -> None:
    ours, theirs = map(set, found)
    assert len(ours) == 2  # forward and backward
    assert ours == theirs


@pytest.mark.gpu
@pytest.mark.parametrize("case", SAME_PROBLEMS[:4], ids=by_name)
def test_the_same_containers_run_in_both(case):
    with recorded(sdpa_torch.cudnn.NativeRuntime, sdpa_jax.cudnn.NativeRuntime) as found:
        run_torch(case, "cuda", DETERMINISTIC)
        run_jax(case, DETERMINISTIC)
    assert_same_plans(found)


@pytest.mark.parametrize(
    "case", [case for case in SAME_PROBLEMS if case.dtype is DType.BFLOAT16], ids=by_name
)
def test_the_same_plans_are_described_in_both(case):
    """Without a GPU: fingerprint, bindings and header are equal, so a kernel would be too.

    The results are the oracle's; torch rounds them twice on their way to 16 bits.
    """
    with recorded(sdpa_torch.testing.FakeRuntime, sdpa_jax.testing.FakeRuntime) as found:
        with sdpa_torch.testing.fake_cudnn():
            ours = run_torch(case, "cpu", DETERMINISTIC)
        with sdpa_jax.testing.fake_cudnn():
            theirs = run_jax(case, DETERMINISTIC)
    assert_same_plans(found)
    assert max(distance(ours, theirs, case).values()) < 1e-4


@pytest.mark.parametrize(
    "case", [c for c in CASES if "empty" not in c.tags and c.dtype is DType.FLOAT32], ids=by_name
)
def test_the_references_agree(case):
    """float32 on the CPU, each framework with its own arithmetic."""
    ours = as_numbers(run_torch(case, "cpu", backend="reference"), case)
    theirs = as_numbers(run_jax(case, implementation="reference"), case)
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=2e-4, atol=2e-5, err_msg=name)
