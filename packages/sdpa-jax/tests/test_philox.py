"""The arrays are the decisions of sdpa_core.testing.philox_bits, block by block."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_core.testing.philox_bits import keep_mask as expected
from sdpa_jax.philox import keep_mask

SEEDS = [0, 2**31 + 3, 2**62 + 2**32 - 1, -1, -(2**63)]
OFFSETS = [0, 16, 2**33 + 4096, 2**34 - 4, 2**40 + 16, 2**63 - 4096]


def words(number: int) -> jax.Array:
    """Low and high word of an int64."""
    return jnp.array(np.array([number], np.int64).view(np.uint32))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("offset", OFFSETS)
def test_every_seed_and_offset(seed, offset):
    mask = keep_mask(words(seed), words(offset), 0.3, 2, 3, 37, 0, 37, 53)
    assert mask.dtype == jnp.bool_
    np.testing.assert_array_equal(mask, expected(seed, offset, 0.3, 2, 3, 37, 53))


@pytest.mark.parametrize(("start", "count"), [(0, 16), (5, 72), (15, 2), (16, 16), (99, 1)])
def test_blocks(start, count):
    whole = expected(-5, 64, 0.5, 1, 2, 100, 117)
    mask = keep_mask(words(-5), words(64), 0.5, 1, 2, 100, start, count, 117)
    np.testing.assert_array_equal(mask, whole[:, :, start : start + count])


def test_no_dropout():
    assert keep_mask(words(1), words(0), 0.0, 1, 1, 8, 0, 8, 8).all()


def test_traced_start_seed_and_offset():
    """As a scan over blocks uses it; the last block is filled up past the last row."""
    whole = expected(-9, 32, 0.2, 2, 2, 50, 33)

    @jax.jit
    def blocks(seed: jax.Array, offset: jax.Array) -> jax.Array:
        block = partial(keep_mask, seed, offset, 0.2, 2, 2, 50)
        return jax.lax.map(lambda start: block(start, 20, 33), jnp.arange(3, dtype=jnp.int32) * 20)

    mask = np.concatenate(blocks(words(-9), words(32)), axis=2)
    np.testing.assert_array_equal(mask[:, :, :50], whole)


def test_the_same_with_64_bit_integers():
    with jax.enable_x64(True):
        mask = keep_mask(words(-9), words(2**33), 0.2, 2, 2, 50, jnp.int64(3), 40, 33)
        np.testing.assert_array_equal(mask, expected(-9, 2**33, 0.2, 2, 2, 50, 33)[:, :, 3:43])


def test_refusals():
    block = (0.5, 1, 1, 8, 0, 8, 8)
    with pytest.raises(TypeError, match="seed is int32"):
        keep_mask(jnp.zeros(2, jnp.int32), words(0), *block)
    with pytest.raises(ValueError, match="offset has shape"):
        keep_mask(words(0), jnp.zeros(1, jnp.uint32), *block)
    with pytest.raises(ValueError, match="dropout_p is 1"):
        keep_mask(words(0), words(0), 1.0, *block[1:])
