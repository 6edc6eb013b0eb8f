"""Every feature is the same in PyTorch and in JAX: the same plans, hence the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sdpa_jax.testing
import sdpa_torch.testing
from sdpa_core import DeviceSpec, DType
from sdpa_core.testing import CASES, Case, Result, covering, in_16_bits
from sdpa_core.testing.conformance import assert_same_bits
from sdpa_jax.testing import JaxSubject
from sdpa_torch.testing import TorchSubject, subject


def as_jax_stores_it(case: Case) -> Case:
    """The case with dense operands in JAX's order of axes, where the order is the case's choice."""
    if case.packed:
        return replace(case, layout="bhsd" if case.packed == "both" else "bshd")  # dense
    return replace(case, layout="bshd", bias_layout="dense")


def is_on_cudnn(case: Case) -> bool:
    return "slice" in case.tags and "empty" not in case.tags


FEATURES = tuple(
    as_jax_stores_it(case) for case in covering(in_16_bits(CASES)) if is_on_cudnn(case)
)
each_case = pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.name)


def run_both(
    case: Case, ours: TorchSubject, theirs: JaxSubject, monkeypatch: pytest.MonkeyPatch
) -> tuple[Result, Result] | None:
    """Results of deterministic training (pages: inference); None if both refuse."""
    options = {"training": case.page_size is None, "return_lse": True, "deterministic": True}
    refused = ours.refusal(case, **options)
    assert bool(refused) == bool(theirs.refusal(case, **options))
    if refused:
        return None
    found = theirs.run(case, case.arrays(), **options)
    if found.dropout is not None:  # JAX's seed comes from a key, torch's may be any
        seed = found.dropout.seed
        monkeypatch.setattr(subject, "_SEED", seed - 2**64 if seed >= 2**63 else seed)
    return ours.run(case, case.arrays(), **options), found


@pytest.mark.gpu
@each_case
def test_results_are_bitwise_equal(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    device = sdpa_jax.device.device_spec("cuda", True)
    ours = TorchSubject("torch", device="cuda", backend="cudnn", spec=device, grad_like_output=True)
    theirs = JaxSubject("jax", implementation="cudnn", spec=device)
    both = run_both(case, ours, theirs, monkeypatch)
    if both is not None:
        assert both[0].arrays().keys() == both[1].arrays().keys()
        assert_same_bits(*both, tuple(both[0].arrays()))


@each_case
def test_plans_are_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU: the keys of all plans, and of no others."""
    device = DeviceSpec.named("h200", cudnn_version=91900)
    with sdpa_torch.testing.fake_cudnn() as our_fake, sdpa_jax.testing.fake_cudnn() as their_fake:
        ours = TorchSubject("torch", backend="cudnn", spec=device, grad_like_output=True)
        theirs = JaxSubject("jax", implementation="cudnn", spec=device)
        both = run_both(case, ours, theirs, monkeypatch)
        executed = [{plan.fingerprint for plan in fake.executed} for fake in (our_fake, their_fake)]
    assert executed[0] == executed[1]
    assert bool(executed[0]) == (both is not None)


@pytest.mark.parametrize(
    "case",
    [case for case in covering(CASES) if case.dtype is DType.FLOAT32 and "empty" not in case.tags],
    ids=lambda case: case.name,
)
def test_references_agree(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 on the CPU, each framework with its own arithmetic."""
    ours = TorchSubject("torch", backend="reference")
    theirs = JaxSubject("jax", implementation="reference")
    both = run_both(case, ours, theirs, monkeypatch)
    assert both is not None
    first, second = (result.arrays() for result in both)
    for name, array in first.items():
        np.testing.assert_allclose(array, second[name], rtol=5e-4, atol=5e-5, err_msg=name)
