"""The adapter passes the conformance suite: by reference, and through the checked cuDNN path.

On the fake cuDNN a part of the cases stands for all; SDPA_EVERY_CASE=1 runs them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from sdpa_core import DeviceSpec
from sdpa_core.testing import CASES, LARGE_CASES, covering, in_16_bits
from sdpa_core.testing.conformance import ConformanceSuite
from sdpa_torch.device import device_spec
from sdpa_torch.testing import TorchSubject, fake_cudnn


class TestReference(ConformanceSuite):
    @pytest.fixture
    def subject(self) -> TorchSubject:
        return TorchSubject("reference on the CPU")


class TestFakeCudnn(ConformanceSuite):
    """Every operand that would reach the executor is compared with the described graph."""

    cases = in_16_bits(CASES) if os.environ.get("SDPA_EVERY_CASE") else covering(in_16_bits(CASES))

    @pytest.fixture
    def subject(self) -> Iterator[TorchSubject]:
        spec = DeviceSpec.named("h200", cudnn_version=91900)
        with fake_cudnn("h200", 91900):
            yield TorchSubject("fake cuDNN", backend="cudnn", spec=spec)


@pytest.mark.gpu
class TestCudnn(ConformanceSuite):
    cases = in_16_bits(CASES + LARGE_CASES)

    @pytest.fixture
    def subject(self) -> TorchSubject:
        spec = device_spec(torch.device("cuda", torch.cuda.current_device()))
        return TorchSubject("cuDNN", device="cuda", backend="cudnn", spec=spec)


@pytest.mark.gpu
class TestReferenceOnGpu(ConformanceSuite):
    @pytest.fixture
    def subject(self) -> TorchSubject:
        return TorchSubject("reference on the GPU", device="cuda", backend="reference")
