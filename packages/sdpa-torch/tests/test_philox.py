"""The tensors are the decisions of sdpa_core.testing.philox_bits, block by block."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sdpa_core.testing.philox_bits import keep_mask as expected
from sdpa_torch.philox import keep_mask

SEEDS = [0, 2**31 + 3, 2**62 + 2**32 - 1, -1, -(2**63)]
OFFSETS = [0, 16, 2**33 + 4096, 2**34 - 4, 2**40 + 16, 2**63 - 4096]


def scalars(seed: int, offset: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([seed]), torch.tensor([offset])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("offset", OFFSETS)
def test_every_seed_and_offset(seed, offset):
    mask = keep_mask(*scalars(seed, offset), 0.3, 2, 3, 37, (0, 37), (0, 53))
    assert mask.dtype == torch.bool
    np.testing.assert_array_equal(mask, expected(seed, offset, 0.3, 2, 3, 37, 53))


@pytest.mark.parametrize("rows", [(0, 16), (5, 77), (15, 17), (16, 32), (99, 100), (40, 40)])
@pytest.mark.parametrize("columns", [(0, 117), (19, 117), (7, 9), (64, 80), (3, 3)])
def test_blocks(rows, columns):
    whole = expected(-5, 64, 0.5, 1, 2, 100, 117)
    mask = keep_mask(*scalars(-5, 64), 0.5, 1, 2, 100, rows, columns)
    np.testing.assert_array_equal(mask, whole[:, :, slice(*rows), slice(*columns)])


def test_no_dropout():
    assert keep_mask(*scalars(1, 0), 0.0, 1, 1, 8, (0, 8), (0, 8)).all()


def test_scalars_of_any_rank():
    seed, offset = scalars(9, 4)
    mask = keep_mask(seed.reshape(1, 1, 1, 1), offset.reshape(()), 0.5, 1, 2, 8, (0, 8), (0, 8))
    np.testing.assert_array_equal(mask, expected(9, 4, 0.5, 1, 2, 8, 8))


def test_compiled_without_a_graph_break():
    compiled = torch.compile(keep_mask, backend="eager", fullgraph=True)
    for seed, offset in ((3, 0), (-3, 32)):
        mask = compiled(*scalars(seed, offset), 0.2, 2, 2, 50, (3, 50), (0, 33))
        np.testing.assert_array_equal(mask, expected(seed, offset, 0.2, 2, 2, 50, 33)[:, :, 3:])


def test_needs_no_values():
    """Meta tensors hold none: reading seed or offset on the host would raise."""
    seed, offset = (x.to("meta") for x in scalars(3, 0))
    mask = keep_mask(seed, offset, 0.2, 2, 2, 50, (3, 50), (0, 33))
    assert mask.device.type == "meta"
    assert mask.shape == (2, 2, 47, 33)


def test_refusals():
    seed, offset = scalars(1, 0)
    block = (0.5, 1, 1, 8, (0, 8), (0, 8))
    with pytest.raises(TypeError, match=r"seed is torch\.int32"):
        keep_mask(seed.int(), offset, *block)
    with pytest.raises(ValueError, match="offset has shape"):
        keep_mask(seed, torch.zeros(2, dtype=torch.int64), *block)
    with pytest.raises(ValueError, match="dropout_p is 1"):
        keep_mask(seed, offset, 1.0, *block[1:])
