"""The conformance suite of sdpa_core on the reference, and on the cuDNN path with a fake cuDNN."""

from collections.abc import Iterator

import pytest

from sdpa_core import DeviceSpec
from sdpa_core.testing.conformance import ConformanceSuite
from sdpa_jax.testing import JaxSubject, fake_cudnn


class TestReference(ConformanceSuite):
    @pytest.fixture
    def subject(self) -> JaxSubject:
        return JaxSubject("jax reference", implementation="reference")


class TestFakeCudnn(ConformanceSuite):
    # One fake for all tests: JAX keeps what it compiled for it.
    @pytest.fixture(scope="class")
    @classmethod
    def subject(cls) -> Iterator[JaxSubject]:
        spec = DeviceSpec.named("h200", cudnn_version=91900)
        with fake_cudnn("h200", 91900):
            yield JaxSubject("jax on a fake cuDNN", implementation="cudnn", spec=spec)
