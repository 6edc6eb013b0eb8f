from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdpa_core.dtypes import DType
from sdpa_core.mask import Alignment
from sdpa_core.testing import CASES, LARGE_CASES, Case, attention, place, problem_of, round_to
from sdpa_core.validate import check_operands

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_names_are_unique_identifiers():
    names = [case.name for case in CASES + LARGE_CASES]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


@each_case
def test_data_are_numbers_of_the_type_and_always_the_same(case):
    for array, again in zip(case.arrays(), case.arrays(), strict=True):
        np.testing.assert_array_equal(array, again)
        np.testing.assert_array_equal(array, round_to(array, case.dtype))
        assert np.isfinite(array).all()


def test_sequences_and_heads_differ():
    for array in Case("any").arrays():
        blocks = array.reshape(-1, *array.shape[2:])
        assert all((blocks[0] != block).any() for block in blocks[1:])


def test_other_seeds_and_names_have_other_data():
    query = Case("one").arrays().query
    assert (Case("one", seed=1).arrays().query != query).any()
    assert (Case("two").arrays().query != query).any()


@pytest.mark.parametrize("case", [c for c in CASES if "negative_lse" in c.tags], ids=str)
def test_very_negative_logits_give_an_lse_that_float32_cannot_exponentiate(case):
    query, key, value, _ = case.arrays()
    lse = attention(query, key, value, band=case.band, scale=case.scale).lse
    assert (lse < -88.8).all()
    with np.errstate(over="ignore"):
        assert np.isposinf(np.exp(-lse.astype(np.float32))).all()


def test_what_the_cases_cover():
    def some(*tags: str, **fields: object) -> bool:
        return any(
            case.tags.issuperset(tags)
            and all(getattr(case, name) == value for name, value in fields.items())
            for case in CASES
        )

    for dtype in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32):
        for layout in ("bhsd", "bshd"):
            assert some("slice", dtype=dtype, layout=layout)
        assert some("causal", dtype=dtype)
        assert some("gqa", dtype=dtype)
        assert some("negative_lse", dtype=dtype)
    for head_dim in (8, 64, 72, 96, 128, 256):
        assert some("slice", head_dim=head_dim, head_dim_v=head_dim)
    for pair in ((192, 128), (128, 64), (256, 128), (64, 128)):
        assert some("mixed_head_dim", head_dim=pair[0], head_dim_v=pair[1])
    for residue in (33, 63, 64, 65, 100, 127, 128, 129, 192, 255):
        assert some("negative_lse", tokens_kv=residue)
    for layout in ("packed_qkv", "unaligned", "expanded_kv"):
        assert some(layout=layout)
    for empty in ("batch", "tokens_q", "tokens_kv"):
        assert some("empty", **{empty: 0})
    assert some("unseen_rows", "causal")
    assert some("decode", "gqa")
    assert some(scale=0.0)
    assert {case.band.alignment for case in CASES if "cross" in case.tags} == set(Alignment)


def test_nothing_is_large_but_the_large_cases():
    assert not any("large" in case.tags for case in CASES)
    assert all("large" in case.tags for case in LARGE_CASES)


def test_packed_operands_must_be_alike():
    with pytest.raises(ValueError, match="packed_qkv needs equal"):
        Case("packed", layout="packed_qkv", heads=4, heads_kv=2)


def test_a_scale_of_zero_makes_no_large_logits():
    with pytest.raises(ValueError, match="need a scale other than 0"):
        Case("zero", scale=0.0, logits="very_negative")


@each_case
def test_placed_operands_hold_the_data(case):
    inputs = case.arrays()
    for placed, array in zip(place(case, inputs), inputs, strict=False):
        np.testing.assert_array_equal(placed.read(), array)
        assert placed.buffer.dtype.itemsize == case.dtype.itemsize


@each_case
def test_placed_operands_are_the_problem(case):
    query, key, value = (placed.spec for placed in place(case, case.arrays()))
    check_operands(query, key, value)
    problem = problem_of(case, training=True)
    assert (problem.query, problem.key, problem.value) == (
        query.canonical(),
        key.canonical(),
        value.canonical(),
    )
    assert problem.output.shape == case.output_shape


def test_layouts_in_memory():
    base = Case("base", heads=4, heads_kv=4)

    def strides(layout):
        case = replace(base, layout=layout)
        return [placed.spec for placed in place(case, case.arrays())]

    assert strides("bhsd")[0].strides == (4 * 48 * 64, 48 * 64, 64, 1)
    assert strides("bshd")[0].strides == (4 * 48 * 64, 64, 4 * 64, 1)
    assert strides("packed_qkv")[1].strides == (48 * 3 * 4 * 64, 64, 3 * 4 * 64, 1)
    assert strides("unaligned")[2].alignment == 2
    query, key, _ = strides("expanded_kv")
    assert (query.strides[1], key.strides[1]) == (48 * 64, 0)


def test_packed_operands_share_their_buffer_and_others_have_poison_around():
    packed = Case("packed", layout="packed_qkv")
    query, key, value = place(packed, packed.arrays())
    assert query.buffer is key.buffer is value.buffer
    unaligned = Case("unaligned", layout="unaligned", dtype=DType.FLOAT32)
    assert np.isnan(place(unaligned, unaligned.arrays())[0].buffer[0])
