"""Every kind of last key tile: cuDNN 9.19 fills dQ with NaN where it is half empty (known_bad).

On the CPU the conformance suites show that such problems get the remedy.
"""

from __future__ import annotations

import pytest
from adapters import Options, assert_right, run_jax, run_torch

from sdpa_core.mask import Band
from sdpa_core.testing import Case

pytestmark = pytest.mark.gpu

#: Tokens in the last tile of 128: every multiple of 16, and both sides of the halves.
RESIDUES = sorted({*range(0, 128, 16), 1, 8, 63, 65, 100, 127})


def case_of(tokens, head_dim, causal):
    """Logits of about -120: each LSE is below -88.7, where exp(-LSE) overflows."""
    name = f"tiles_{tokens}_{head_dim}_{causal}"
    band = Band.causal() if causal else Band()
    sizes = (2, 2, 1, tokens, tokens, head_dim, head_dim)
    return Case(name, *sizes, band=band, logits="very_negative", layout="bshd")


@pytest.mark.parametrize("residue", RESIDUES)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_every_residue(residue, head_dim, causal):
    case = case_of(128 + residue, head_dim, causal)
    assert_right(run_torch(case, "cuda"), case)


@pytest.mark.parametrize("tokens", [64, 192, 320, 448])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("deterministic", [False, True])
def test_half_empty_tiles(tokens, head_dim, deterministic):
    case = case_of(tokens, head_dim, causal=False)
    assert_right(run_torch(case, "cuda", Options(True, deterministic)), case)


@pytest.mark.parametrize("tokens", [64, 192])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_half_empty_tiles_in_jax(tokens, head_dim):
    case = case_of(tokens, head_dim, causal=False)
    assert_right(run_jax(case), case)
