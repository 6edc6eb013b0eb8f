"""The oracle against facts that need no oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdpa_core.mask import Alignment, Band
from sdpa_core.testing import attention, attention_backward
from sdpa_core.testing.reference import visible_pairs

BANDS = [
    Band(),
    Band.causal(),
    Band.causal(Alignment.BOTTOM_RIGHT),
    Band(2, 1),
    Band(1, None, Alignment.BOTTOM_RIGHT),
]
LENGTHS = [(5, 5), (3, 7), (7, 3), (1, 4), (4, 1), (1, 1)]
bands = pytest.mark.parametrize("band", BANDS, ids=str)
lengths = pytest.mark.parametrize(("sq", "skv"), LENGTHS)


def operands(sq=5, skv=5, heads=4, heads_kv=2, d=6, dv=3, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((2, heads, sq, d), (2, heads_kv, skv, d), (2, heads_kv, skv, dv), (2, heads, sq, dv))
    return tuple(rng.standard_normal(shape) for shape in shapes)


@bands
@lengths
def test_visible_pairs_are_what_the_band_says(band, sq, skv):
    shift = skv - sq if band.alignment is Alignment.BOTTOM_RIGHT else 0
    visible = visible_pairs(band, sq, skv)
    for i in range(sq):
        for j in range(skv):
            left = band.left is None or j >= i + shift - band.left
            right = band.right is None or j <= i + shift + band.right
            assert visible[i, j] == (left and right)


@bands
@lengths
def test_normalizing_a_band_changes_no_pair(band, sq, skv):
    same = visible_pairs(band.normalized(sq, skv), sq, skv)
    assert (visible_pairs(band, sq, skv) == same).all()


@bands
@lengths
def test_equal_logits_give_the_mean_of_the_visible_values(band, sq, skv):
    query, key, value, _ = operands(sq, skv)
    output, lse = attention(np.zeros_like(query), key, value, band=band)
    visible = visible_pairs(band, sq, skv)
    for i in range(sq):
        seen = value[:, :, visible[i]].repeat(2, axis=1)
        expected = seen.mean(axis=2) if visible[i].any() else 0.0
        np.testing.assert_allclose(
            output[:, :, i], np.broadcast_to(expected, output[:, :, i].shape)
        )
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(lse[:, :, i], np.log(visible[i].sum()))


@bands
@lengths
def test_values_of_one_give_one(band, sq, skv):
    query, key, value, _ = operands(sq, skv)
    output, lse = attention(query, key, np.ones_like(value), band=band)
    seen = visible_pairs(band, sq, skv).any(axis=1)
    np.testing.assert_allclose(output[:, :, seen], 1.0)
    assert (output[:, :, ~seen] == 0).all()
    assert np.isneginf(lse[:, :, ~seen]).all()
    assert np.isfinite(lse[:, :, seen]).all()


@bands
def test_one_hot_values_give_the_probabilities(band):
    query, key, _, _ = operands(sq=5, skv=5, heads=2, heads_kv=2)
    one_hot = np.broadcast_to(np.eye(5), (2, 2, 5, 5))
    p, lse = attention(query, key, one_hot, band=band, scale=0.7)
    logits = 0.7 * np.einsum("bhid,bhjd->bhij", query, key)
    visible = visible_pairs(band, 5, 5)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0)
    np.testing.assert_allclose(np.where(visible, np.exp(logits - lse[..., None]), 0), p, atol=1e-15)


def test_query_heads_share_key_heads_in_groups():
    query, key, value, _ = operands(heads=6, heads_kv=2)
    shared = attention(query, key, value)
    repeated = attention(query, key.repeat(3, axis=1), value.repeat(3, axis=1))
    np.testing.assert_array_equal(shared.output, repeated.output)


@bands
@lengths
@pytest.mark.parametrize("scale", [None, 0.3, -0.5, 0.0])
def test_gradients_are_finite_differences(band, sq, skv, scale):
    *inputs, grad_output = operands(sq, skv)
    gradients = attention_backward(*inputs, grad_output, band=band, scale=scale)
    rng = np.random.default_rng(1)
    step = 1e-5
    for position, gradient in enumerate(gradients):
        direction = rng.standard_normal(gradient.shape)
        losses = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[position] = inputs[position] + sign * step * direction
            losses.append(np.sum(grad_output * attention(*moved, band=band, scale=scale).output))
        slope = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", ["key", "value", "both"])
def test_what_a_hidden_key_holds_reaches_nothing(bad, which):
    query, key, value, grad_output = operands()
    clean = attention(query, key, value, band=Band.causal())
    grads = attention_backward(query, key, value, grad_output, band=Band.causal())
    if which != "value":
        key[:, :, 3] = bad
    if which != "key":
        value[:, :, 3] = bad
    dirty = attention(query, key, value, band=Band.causal())
    np.testing.assert_array_equal(dirty.output[:, :, :3], clean.output[:, :, :3])
    np.testing.assert_array_equal(dirty.lse[:, :, :3], clean.lse[:, :, :3])
    assert not np.isfinite(dirty.output[:, :, 4]).all()
    dirty_grads = attention_backward(query, key, value, grad_output, band=Band.causal())
    same = dirty_grads.grad_query[:, :, :3]
    np.testing.assert_array_equal(same, grads.grad_query[:, :, :3])


def test_a_query_that_sees_nothing_reaches_no_gradient():
    query, key, value, grad_output = operands(sq=7, skv=3)
    band = Band.causal(Alignment.BOTTOM_RIGHT)
    clean = attention_backward(query, key, value, grad_output, band=band)
    query[:, :, :4] = grad_output[:, :, :4] = np.nan
    dirty = attention_backward(query, key, value, grad_output, band=band)
    for one, other in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (dirty.grad_query[:, :, :4] == 0).all()


@pytest.mark.parametrize("logit", [-1e4, -120.0, 120.0, 1e4])
def test_large_logits_neither_overflow_nor_underflow(logit):
    key = np.full((1, 1, 5, 4), logit / 4)
    value = np.arange(5.0).reshape(1, 1, 5, 1)
    query = np.ones((1, 1, 2, 4))
    output, lse = attention(query, key, value, scale=1.0)
    np.testing.assert_allclose(output, 2.0)
    np.testing.assert_allclose(lse, logit + np.log(5))
    gradients = attention_backward(query, key, value, np.ones((1, 1, 2, 1)), scale=1.0)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("empty", ["batch", "heads", "queries", "keys", "head_dim", "head_dim_v"])
def test_empty_operands(empty):
    sizes = {"batch": 2, "heads": 2, "queries": 3, "keys": 4, "head_dim": 5, "head_dim_v": 6}
    sizes[empty] = 0
    b, h, sq, skv, d, dv = sizes.values()
    shapes = ((b, h, sq, d), (b, h, skv, d), (b, h, skv, dv), (b, h, sq, dv))
    query, key, value, grad_output = (np.ones(shape) for shape in shapes)
    output, lse = attention(query, key, value)
    assert output.shape == (b, h, sq, dv)
    assert lse.shape == (b, h, sq)
    if empty == "keys":
        assert (output == 0).all()
        assert np.isneginf(lse).all()
    gradients = attention_backward(query, key, value, grad_output)
    assert [gradient.shape for gradient in gradients] == list(shapes[:3])
    assert all((gradient == 0).all() for gradient in gradients if empty == "keys")


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(-6, 6), st.integers(-6, 6), st.booleans())
def test_any_band_gives_finite_results(sq, skv, left, right, bottom_right):
    alignment = Alignment.BOTTOM_RIGHT if bottom_right else Alignment.TOP_LEFT
    query, key, value, grad_output = operands(sq, skv)
    band = Band(left, right, alignment)
    output, lse = attention(query, key, value, band=band)
    gradients = attention_backward(query, key, value, grad_output, band=band)
    assert np.isfinite(output).all()
    assert not np.isnan(lse).any()
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_shapes_that_do_not_fit_name_the_argument():
    query, key, value, grad_output = operands()
    with pytest.raises(ValueError, match=r"value has 4 tokens, key has 5"):
        attention(query, key, value[:, :, :4])
    with pytest.raises(ValueError, match=r"grad_output has shape .*expected the output's"):
        attention_backward(query, key, value, grad_output[..., :2])
