"""The conformance suite of sdpa_core on the reference, and on the cuDNN path with a fake cuDNN.

JAX compiles every call, so a part of the cases stands for all; SDPA_EVERY_CASE=1 runs them all.
"""

import os
from collections.abc import Iterator

import pytest

from sdpa_core import DeviceSpec
from sdpa_core.testing import CASES, Case, covering, in_16_bits
from sdpa_core.testing.conformance import ConformanceSuite
from sdpa_jax.testing import JaxSubject, fake_cudnn


def part(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return cases if os.environ.get("SDPA_EVERY_CASE") else covering(cases)


class TestReference(ConformanceSuite):
    cases = part(CASES)

    @pytest.fixture
    def subject(self) -> JaxSubject:
        return JaxSubject("jax reference", implementation="reference")


class TestFakeCudnn(ConformanceSuite):
    cases = part(in_16_bits(CASES))

    # One fake for all tests: JAX keeps what it compiled for it.
    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls) -> Iterator[JaxSubject]:
        spec = DeviceSpec.named("h200", cudnn_version=91900)
        with fake_cudnn("h200", 91900):
            yield JaxSubject("jax on a fake cuDNN", implementation="cudnn", spec=spec)
