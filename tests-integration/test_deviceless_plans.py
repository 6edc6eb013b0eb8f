"""A plan made from a description of a GPU is the plan made on that GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from adapters import Options, assert_right, assert_same_bits, run_torch

import sdpa_torch.attend
import sdpa_torch.cudnn
from sdpa_core import DeviceSpec, device_names
from sdpa_core.cudnn import probe
from sdpa_core.mask import Band
from sdpa_core.testing import Case
from sdpa_torch.device import device_spec

pytestmark = pytest.mark.gpu

CASES = (
    Case("described", 2, 8, 2, 512, 512, 128, 128, band=Band.causal(), layout="bshd"),
    Case("described_half_tile", 2, 4, 2, 192, 192, 64, 64, logits="very_negative"),
)


def described():
    """The description of this machine's GPU in the library's list, if it is in there."""
    here = device_spec(torch.device("cuda", torch.cuda.current_device()))
    for name in device_names():
        found = DeviceSpec.named(name, cudnn_version=here.cudnn_version)
        if (found.name, found.sm, found.sm_count) == (here.name, here.sm, here.sm_count):
            return found
    pytest.skip(f"{here} is not described in the list")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_plan_from_a_description_gives_the_same_bits(case, monkeypatch):
    options = Options(deterministic=True)
    live = run_torch(case, "cuda", options)
    spec = described()
    environment = sdpa_torch.attend.environment
    elsewhere = replace(environment, device_spec=lambda where: spec)
    monkeypatch.setattr(sdpa_torch.attend, "environment", elsewhere)
    # Both have one fingerprint: without this, the plans of the live device would be found.
    monkeypatch.setattr(probe, "cache", type(probe.cache)())
    made = run_torch(case, "cuda", options)
    assert probe.cache.counters["miss"] >= 2
    assert_right(made, case)
    assert_same_bits(live, made)
