from __future__ import annotations

from importlib.metadata import entry_points

import pytest

import sdpa_cutedsl
from sdpa_core.backend import Backend
from sdpa_core.device import DeviceSpec
from sdpa_core.dtypes import DType
from sdpa_core.errors import NoBackendError
from sdpa_core.policy import decide, require
from sdpa_core.problem import AttentionProblem, Direction
from sdpa_core.reasons import Verdict
from sdpa_core.registry import GROUP, backends
from sdpa_core.tensor import TensorSpec

SPEC = TensorSpec.dense((2, 4, 128, 64), DType.BFLOAT16)
PROBLEM = AttentionProblem.of(SPEC, SPEC, SPEC, training=True)
DEVICE = DeviceSpec.named("h200")


def test_is_announced():
    (entry,) = entry_points(group=GROUP, name="cutedsl")
    assert entry.load() is sdpa_cutedsl.backend


def test_core_finds_it_between_cudnn_and_the_reference():
    assert list(backends())[:3] == ["cudnn", "cutedsl", "reference"]


@pytest.mark.parametrize("direction", Direction)
def test_refuses_with_a_reason_that_says_what_to_do(direction):
    backend: Backend = sdpa_cutedsl.backend()
    assert backend.name == "cutedsl"
    (reason,) = backend.unsupported_reasons(PROBLEM, DEVICE, direction)
    assert reason.what
    assert reason.need
    assert "'reference'" in reason.hint
    answer = backend.probe(PROBLEM, DEVICE, direction)
    assert answer.verdict is Verdict.REFUSED
    assert answer.reasons == (reason,)


def test_asked_for_by_name_it_never_falls_back():
    decision = decide(PROBLEM, DEVICE, backend="cutedsl", probe=False)
    assert not decision.is_possible
    with pytest.raises(NoBackendError, match="sdpa_cutedsl"):
        require(decision)
