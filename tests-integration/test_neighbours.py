"""Problems that differ in one field, one after the other in one process: no cache mixes them up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from adapters import Options, assert_right, run_jax, run_torch

from sdpa_core import DType
from sdpa_core.mask import Alignment, Band
from sdpa_core.testing import Case

BASE = Case("base", 2, 4, 2, 40, 72, 64, 64, band=Band.causal(), layout="bshd")

NEIGHBOURS = {
    "layout": replace(BASE, layout="bhsd"),
    "band": replace(BASE, band=Band()),
    "alignment": replace(BASE, band=Band.causal(Alignment.BOTTOM_RIGHT)),
    "dtype": replace(BASE, dtype=DType.FLOAT16),
    "scale": replace(BASE, scale=0.3),
    "key heads": replace(BASE, heads_kv=4),
    "queries": replace(BASE, tokens_q=41),
    "keys": replace(BASE, tokens_kv=73),
    "head_dim": replace(BASE, head_dim=72),
    "head_dim of value": replace(BASE, head_dim_v=72),
    "batch": replace(BASE, batch=3),
}


@pytest.mark.parametrize("field", NEIGHBOURS)
@pytest.mark.parametrize("first", ["base", "neighbour"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_in_torch(device, field, first, training):
    pair = [BASE, NEIGHBOURS[field]]
    for case in pair if first == "base" else reversed(pair):
        assert_right(run_torch(case, device, Options(training), layout=case.layout), case)


@pytest.mark.gpu
@pytest.mark.parametrize("field", [name for name in NEIGHBOURS if name != "layout"])
@pytest.mark.parametrize("first", ["base", "neighbour"])
def test_in_jax(field, first):
    pair = [BASE, NEIGHBOURS[field]]
    for case in pair if first == "base" else reversed(pair):
        assert_right(run_jax(case), case)


@pytest.mark.parametrize("first", [True, False])
def test_training_and_inference(device, first):
    for training in (first, not first, first):
        assert_right(run_torch(BASE, device, Options(training)), BASE)
