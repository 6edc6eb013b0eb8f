"""The oracle against facts that need no oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdpa_core.alibi import alibi_slopes
from sdpa_core.mask import Alignment, Band
from sdpa_core.problem import Softmax
from sdpa_core.testing import (
    CASES,
    Dropout,
    DropoutState,
    attention,
    attention_backward,
    features_of,
)
from sdpa_core.testing.logits import visible_pairs

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
    output, lse, _ = attention(np.zeros_like(query), key, value, band=band)
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
    output, lse, _ = attention(query, key, np.ones_like(value), band=band)
    seen = visible_pairs(band, sq, skv).any(axis=1)
    np.testing.assert_allclose(output[:, :, seen], 1.0)
    assert (output[:, :, ~seen] == 0).all()
    assert np.isneginf(lse[:, :, ~seen]).all()
    assert np.isfinite(lse[:, :, seen]).all()


@bands
def test_one_hot_values_give_the_probabilities(band):
    query, key, _, _ = operands(sq=5, skv=5, heads=2, heads_kv=2)
    one_hot = np.broadcast_to(np.eye(5), (2, 2, 5, 5))
    p, lse, _ = attention(query, key, one_hot, band=band, scale=0.7)
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
    for position, gradient in enumerate(gradients[:3]):
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
    for one, other in zip(clean[:3], dirty[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    assert (dirty.grad_query[:, :, :4] == 0).all()


@pytest.mark.parametrize("logit", [-1e4, -120.0, 120.0, 1e4])
def test_large_logits_neither_overflow_nor_underflow(logit):
    key = np.full((1, 1, 5, 4), logit / 4)
    value = np.arange(5.0).reshape(1, 1, 5, 1)
    query = np.ones((1, 1, 2, 4))
    output, lse, _ = attention(query, key, value, scale=1.0)
    np.testing.assert_allclose(output, 2.0)
    np.testing.assert_allclose(lse, logit + np.log(5))
    gradients = attention_backward(query, key, value, np.ones((1, 1, 2, 1)), scale=1.0)
    assert all(np.isfinite(gradient).all() for gradient in gradients[:3])


@pytest.mark.parametrize("empty", ["batch", "heads", "queries", "keys", "head_dim", "head_dim_v"])
def test_empty_operands(empty):
    sizes = {"batch": 2, "heads": 2, "queries": 3, "keys": 4, "head_dim": 5, "head_dim_v": 6}
    sizes[empty] = 0
    b, h, sq, skv, d, dv = sizes.values()
    shapes = ((b, h, sq, d), (b, h, skv, d), (b, h, skv, dv), (b, h, sq, dv))
    query, key, value, grad_output = (np.ones(shape) for shape in shapes)
    output, lse, _ = attention(query, key, value)
    assert output.shape == (b, h, sq, dv)
    assert lse.shape == (b, h, sq)
    if empty == "keys":
        assert (output == 0).all()
        assert np.isneginf(lse).all()
    gradients = attention_backward(query, key, value, grad_output)
    assert [gradient.shape for gradient in gradients[:3]] == list(shapes[:3])
    assert all((gradient == 0).all() for gradient in gradients[:3] if empty == "keys")


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(-6, 6), st.integers(-6, 6), st.booleans())
def test_any_band_gives_finite_results(sq, skv, left, right, bottom_right):
    alignment = Alignment.BOTTOM_RIGHT if bottom_right else Alignment.TOP_LEFT
    query, key, value, grad_output = operands(sq, skv)
    band = Band(left, right, alignment)
    output, lse, _ = attention(query, key, value, band=band)
    gradients = attention_backward(query, key, value, grad_output, band=band)
    assert np.isfinite(output).all()
    assert not np.isnan(lse).any()
    assert all(np.isfinite(gradient).all() for gradient in gradients[:3])


def test_shapes_that_do_not_fit_name_the_argument():
    query, key, value, grad_output = operands()
    with pytest.raises(ValueError, match=r"value has 4 tokens, key has 5"):
        attention(query, key, value[:, :, :4])
    with pytest.raises(ValueError, match=r"grad_output has shape .*expected the output's"):
        attention_backward(query, key, value, grad_output[..., :2])


SMOOTH = [
    "bias_1hss_float32",
    "bias_hides",
    "mask_causal_br",
    "alibi_batch_head_causal_br",
    "lengths_both_causal_br",
    "sink_lengths",
    "sink_unseen_rows",
    "off_by_one_no_keys",
    "softcap_bias_grad",
    "score_mod_scalar_and_tensor",
    "score_mod_with_softcap",
    "score_mod_documents_causal",
    "score_mod_squared_relu",
    "dropout_sink",
    "packed_window_br",
]


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_every_feature_are_finite_differences(name):
    case = next(case for case in CASES if case.name == name)
    inputs = case.arrays()
    features = features_of(case, inputs, DropoutState(3) if case.dropout_p else None)
    gradients = attention_backward(*inputs.operands, **features)
    rng = np.random.default_rng(1)
    named = {
        "query": gradients.grad_query,
        "key": gradients.grad_key,
        "value": gradients.grad_value,
        "bias": gradients.grad_bias,
        "sink": gradients.grad_sink,
    }
    for operand, gradient in named.items():
        if gradient is None:
            continue
        direction = rng.standard_normal(gradient.shape)
        losses = []
        for sign in (1, -1):
            moved = inputs._replace(**{operand: getattr(inputs, operand) + sign * 1e-5 * direction})
            again = {**features, "bias": moved.bias, "sink": moved.sink}
            output = attention(*moved.operands[:3], **again).output
            losses.append(np.sum(inputs.grad_output * output))
        slope = (losses[0] - losses[1]) / 2e-5
        np.testing.assert_allclose(np.sum(gradient * direction), slope, 1e-6, 1e-6, err_msg=operand)


def test_a_sequence_is_what_its_length_says():
    query, key, value, _ = operands(sq=5, skv=7)
    band = Band.causal(Alignment.BOTTOM_RIGHT)
    lengths = {"lengths_q": [5, 3], "lengths_kv": [7, 4]}
    whole = attention(query, key, value, band=band, **lengths)
    cut = attention(query[1:, :, :3], key[1:, :, :4], value[1:, :, :4], band=band)
    np.testing.assert_array_equal(whole.output[1:, :, :3], cut.output)
    np.testing.assert_array_equal(whole.lse[1:, :, :3], cut.lse)
    assert (whole.output[1, :, 3:] == 0).all()
    assert np.isneginf(whole.lse[1, :, 3:]).all()


def test_what_lies_past_a_length_reaches_nothing():
    arrays = operands(sq=5, skv=7)
    lengths = {"lengths_q": [5, 3], "lengths_kv": [7, 0]}
    clean = (*attention(*arrays[:3], **lengths), *attention_backward(*arrays, **lengths)[:3])
    query, key, value, grad_output = arrays
    query[1, :, 3:] = grad_output[1, :, 3:] = key[1] = value[1] = np.nan
    dirty = (*attention(*arrays[:3], **lengths), *attention_backward(*arrays, **lengths)[:3])
    for one, other in zip(clean, dirty, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_sink_is_a_key_without_a_value():
    query, key, value, _ = operands(heads=2, heads_kv=2)
    sink = np.array([0.5, 100.0])
    bias = np.zeros((1, 2, 5, 6))
    bias[..., 5] = sink[None, :, None]
    longer = [np.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0))) for x in (key, value)]
    as_key = attention(query, *longer, bias=bias)
    as_sink = attention(query, key, value, softmax=Softmax.LEARNABLE, sink=sink)
    np.testing.assert_allclose(as_sink.output, as_key.output)
    np.testing.assert_allclose(as_sink.lse, as_key.lse)
    assert (as_sink.max_logit < 10).all()


@pytest.mark.parametrize(
    ("softmax", "sink", "lse"),
    [
        (Softmax.VANILLA, None, -np.inf),
        (Softmax.OFF_BY_ONE, None, 0.0),
        (Softmax.LEARNABLE, [0.5, 0.5, 0.5, 0.5], 0.5),
    ],
)
def test_a_row_without_keys(softmax, sink, lse):
    query, key, value, grad_output = operands()
    features = {"softmax": softmax, "sink": sink, "lengths_kv": [0, 5], "lengths_q": [3, 5]}
    forward = attention(query, key, value, **features)
    assert (forward.output[0] == 0).all()
    assert (forward.lse[0, :, :3] == lse).all()
    assert np.isneginf(forward.lse[0, :, 3:]).all()
    assert (attention_backward(query, key, value, grad_output, **features).grad_query[0] == 0).all()


def test_alibi_is_a_bias():
    query, key, value, _ = operands(sq=3, skv=5)
    slopes = np.array(alibi_slopes(4))
    band = Band(None, 0, Alignment.BOTTOM_RIGHT)
    i, j = np.arange(3)[:, None], np.arange(5)
    bias = -slopes[:, None, None] * np.abs(i + 2 - j)
    given = attention(query, key, value, band=band, alibi_slopes=slopes)
    np.testing.assert_allclose(
        given.output, attention(query, key, value, band=band, bias=bias[None]).output
    )


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (0, ()),
        (1, (2**-8,)),
        (2, (2**-4, 2**-8)),
        (8, tuple(2.0**-i for i in range(1, 9))),
        (3, (2**-4, 2**-8, 2**-2)),
        (6, (2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3)),
    ],
)
def test_standard_slopes(heads, slopes):
    np.testing.assert_allclose(alibi_slopes(heads), slopes)


def test_the_largest_logit_is_of_visible_pairs():
    query, key, value, _ = operands(heads=2, heads_kv=2)
    logits = 0.7 * np.einsum("bhid,bhjd->bhij", query, key)
    mask = np.zeros((2, 1, 5, 5), dtype=bool)
    mask[:, :, 2, 3] = True
    largest = attention(query, key, value, scale=0.7, mask=mask).max_logit
    np.testing.assert_allclose(largest, logits[:, :, 2, 3].max(axis=0))
    assert np.isneginf(attention(query, key, value, mask=mask & False).max_logit).all()


def test_softcap_bounds_the_logits():
    query, key, value, _ = operands()
    assert (attention(100 * query, key, value, softcap=3.0).max_logit <= 3.0).all()
    with pytest.raises(ValueError, match="softcap is 0"):
        attention(query, key, value, softcap=0.0)


def test_dropout_drops_after_the_softmax():
    query, key, _, _ = operands(heads=2, heads_kv=2)
    keep = np.random.default_rng(0).random((2, 2, 5, 5)) < 0.5
    one_hot = np.broadcast_to(np.eye(5), (2, 2, 5, 5))
    plain = attention(query, key, one_hot)
    dropped = attention(query, key, one_hot, dropout=Dropout(keep, 0.5))
    np.testing.assert_allclose(dropped.output, 2 * keep * plain.output)
    np.testing.assert_array_equal(dropped.lse, plain.lse)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"bias": np.zeros((3, 1, 5, 5))}, "bias has shape"),
        ({"sink": np.zeros(4)}, "sink goes with"),
        ({"softmax": Softmax.LEARNABLE}, "sink goes with"),
        ({"lengths_q": [6, 1]}, "lengths_q is"),
        ({"lengths_kv": [1]}, "lengths_kv is"),
        ({"alibi_slopes": np.zeros(3)}, "alibi_slopes has shape"),
    ],
)
def test_features_that_do_not_fit_name_the_argument(features, message):
    with pytest.raises(ValueError, match=message):
        attention(*operands()[:3], **features)
