"""What the tests of several packages share: helper modules, and where attention runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Helper modules and the benchmark lie beside the tests; they are no package that is installed.
sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(params=["fake", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A torch device on which ``backend="cudnn"`` runs: a GPU, or the CPU with the fake cuDNN.

    On the fake every launch is checked against the described graph, and the float64 oracle
    computes: what a test shows there is how operands get to cuDNN. On the GPU it shows the rest.
    """
    if request.param == "cuda":
        yield "cuda"
        return
    from sdpa_torch.testing import fake_cudnn

    with fake_cudnn():
        yield "cpu"
