from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import get_args

import numpy as np
import pytest

from sdpa_core.dtypes import DType
from sdpa_core.mask import Alignment
from sdpa_core.problem import Softmax
from sdpa_core.score_mod import OPS, Apply, trace
from sdpa_core.testing import (
    CASES,
    LARGE_CASES,
    NEIGHBOURS,
    SCORE_MODS,
    Case,
    Packing,
    attention,
    cases_by_report,
    covering,
    features_of,
    in_16_bits,
    place,
    place_all,
    problem_of,
    round_to,
)
from sdpa_core.testing.case import Axes
from sdpa_core.testing.score_mods import OPERATIONS
from sdpa_core.validate import check_operands

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_names_are_unique_identifiers():
    pairs = {case.name: case for pair in NEIGHBOURS for case in pair}
    names = [case.name for case in CASES + LARGE_CASES] + list(pairs)
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


@each_case
def test_data_are_numbers_of_the_type_and_always_the_same(case):
    inputs, others = case.arrays(), case.arrays()
    for array, again in zip(inputs.operands, others.operands, strict=True):
        np.testing.assert_array_equal(array, again)
        np.testing.assert_array_equal(array, round_to(array, case.dtype))
        assert np.isfinite(array).all()
    named = {"bias": case.bias, "mask": case.mask, "sink": case.softmax is Softmax.LEARNABLE}
    for name, wanted in named.items():
        array, again = getattr(inputs, name), getattr(others, name)
        assert (array is not None) == bool(wanted)
        assert array is None or np.array_equal(array, again)
    if inputs.bias is not None:
        rounded = round_to(inputs.bias, case.effective_bias_dtype)
        np.testing.assert_array_equal(inputs.bias, rounded)


def test_sequences_and_heads_differ():
    for array in Case("any").arrays().operands:
        blocks = array.reshape(-1, *array.shape[2:])
        assert all((blocks[0] != block).any() for block in blocks[1:])


def test_other_seeds_and_names_have_other_data():
    query = Case("one").arrays().query
    assert (Case("one", seed=1).arrays().query != query).any()
    assert (Case("two").arrays().query != query).any()


@pytest.mark.parametrize("case", [c for c in CASES if "negative_lse" in c.tags], ids=str)
def test_very_negative_logits_give_an_lse_that_float32_cannot_exponentiate(case):
    query, key, value, _ = case.arrays().operands
    lse = attention(query, key, value, **features_of(case)).lse
    if "sink" in case.tags and (case.sink is None or case.sink > -100):
        return  # the sink alone is above
    seen = lse[~np.isneginf(lse)]
    assert (seen < -88.8).all()
    lse = seen
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
    placed = place(case, inputs)
    for operand, array, packing in zip(
        placed, inputs.operands, (case.packing_q, case.packing_kv, case.packing_kv), strict=False
    ):
        assert operand.buffer.dtype.itemsize == case.dtype.itemsize
        if operand is not placed.query and case.page_size is not None:
            continue
        read = operand.read()
        if packing is None:
            np.testing.assert_array_equal(read, array)
        else:
            tokens = packing.rows >= 0
            np.testing.assert_array_equal(
                packing.unpack(read).swapaxes(1, 2)[tokens], array.swapaxes(1, 2)[tokens]
            )
            assert np.isnan(packing.gap_rows(read)).all()


@each_case
def test_placed_operands_are_the_problem(case):
    placed = place_all(case, case.arrays())
    problem = problem_of(case, training=True)
    assert problem.output.shape == case.output_shape
    missing = {"dropout_seed", "dropout_offset"}
    if case.mask is not None:
        missing.add("bias")
    scalars = [i for i, shape in enumerate(case.auxiliary_shapes) if shape is None]
    given = {name for name in placed if name not in {"mask", "grad_output"}}
    given -= {f"score_mod_{i}" for i in range(8)}
    wanted = {name for name in problem.inputs if not name.startswith("score_mod_")}
    assert given == wanted - missing
    tensors = sum(name.startswith("score_mod_") for name in problem.inputs)
    assert tensors + len(scalars) == len(case.auxiliary_shapes)
    if case.packed is None and case.page_size is None:
        query, key, value = (placed[name].spec for name in ("query", "key", "value"))
        check_operands(query, key, value)
        assert (problem.query, problem.key, problem.value) == (
            query.canonical(),
            key.canonical(),
            value.canonical(),
        )


@pytest.mark.parametrize("case", [c for c in CASES if "paged" in c.tags], ids=str)
def test_pages_hold_the_sequences(case):
    inputs = case.arrays()
    pages = case.pages(inputs)
    pools = ((pages.key_pool, pages.key_table, inputs.key),)
    pools += ((pages.value_pool, pages.value_table, inputs.value),)
    for pool, table, operand in pools:
        for b, length in enumerate(case.lengths_kv):
            rows = pool[table[b]].reshape(-1, *pool.shape[2:])
            np.testing.assert_array_equal(rows[:length].swapaxes(0, 1), operand[b, :, :length])
            assert (np.abs(rows[length:]) > 100).all()
        assert np.isfinite(pool).all()
    assert (pages.key_table == pages.value_table).all() != case.own_value_table


def test_packing_by_hand():
    packing = Packing((3, 0, 2), 4, gaps=(1, 2, 0), tail=1)
    np.testing.assert_array_equal(packing.cu_seqlens, [0, 3, 3, 5])
    np.testing.assert_array_equal(packing.cu_seqlens_padded, [0, 4, 6, 8])
    assert packing.tokens == 9
    padded = np.arange(12.0).reshape(3, 1, 4, 1)
    packed = packing.pack(padded)
    np.testing.assert_array_equal(packed[:, 0, 0], [0, 1, 2, *[np.nan] * 3, 8, 9, np.nan])
    np.testing.assert_array_equal(
        packing.unpack(packed)[:, 0, :, 0], [[0, 1, 2, 0], [0] * 4, [8, 9, 0, 0]]
    )
    assert packing.gap_rows(packed).shape == (4, 1, 1)
    touching = Packing((3, 2), 4)
    assert touching.cu_seqlens_padded is None
    np.testing.assert_array_equal(touching.starts, [0, 3])


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
    assert strides("sbhd")[0].strides == (4 * 64, 64, 2 * 4 * 64, 1)
    assert strides("qkv_h3d")[1].strides == (48 * 3 * 4 * 64, 3 * 64, 3 * 4 * 64, 1)
    assert strides("kv_packed")[2].strides == (48 * 2 * 4 * 64, 64, 2 * 4 * 64, 1)
    assert strides("kv_h2d")[2].strides == (48 * 2 * 4 * 64, 2 * 64, 2 * 4 * 64, 1)
    assert strides("odd_rows")[0].strides == (48 * 257, 64, 257, 1)


def test_packed_operands_share_their_buffer_and_others_have_poison_around():
    packed = Case("packed", layout="packed_qkv")
    query, key, value = place(packed, packed.arrays())
    assert query.buffer is key.buffer is value.buffer
    unaligned = Case("unaligned", layout="unaligned", dtype=DType.FLOAT32)
    assert np.isnan(place(unaligned, unaligned.arrays())[0].buffer[0])


def test_what_the_features_cover():
    def some(*tags: str, **fields: object) -> bool:
        return any(
            case.tags.issuperset(tags)
            and all(getattr(case, name) == value for name, value in fields.items())
            for case in CASES
        )

    for axes in get_args(Axes):
        assert some("bias", bias=axes)
        assert some("mask", "unseen_rows", mask=axes) or axes in {"111s", "b11s", "bh1s", "1h1s"}
    for tag in ("window", "bias", "lengths", "sink", "softcap", "score_mod", "dropout", "packed"):
        for dtype in (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32):
            assert some(tag, dtype=dtype), (tag, dtype)
        assert some(tag, "negative_lse"), tag
        assert some(tag, "decode"), tag
    for tag in ("lengths", "packed", "paged", "sink"):
        assert some(tag, "empty_sequence"), tag
    for side in ("both", "q", "kv"):
        assert some("packed", "gaps", packed=side)
    for tokens in (1, 2, 17):
        assert some("lengths", tokens_q=tokens)
    assert some("sink", "lengths", sink=0.5)
    assert some("sink", sink=100.0)
    assert some("paged", "packed")
    assert some("paged", own_value_table=True)
    assert {case.score_mod for case in CASES} == {None, *SCORE_MODS}


#: Reports about plans, caches, processes, other data types or frameworks: no case can repeat them.
NOT_ABOUT_VALUES = frozenset(["R27", "R28", "R30", "R39", "R43", "R104", "R106"])

#: Reports about wrong values that arrays of one call can show.
ABOUT_VALUES = frozenset(
    [
        "R01",
        "R03",
        "R04",
        "R05",
        "R07",
        "R08",
        "R10",
        "R15",
        "R16",
        "R18",
        "R20",
        "R21",
        "R22",
        "R24",
        "R26",
        "R32",
        "R34",
        "R36",
        "R37",
        "R40",
        "R42",
        "R44",
        "R45",
        "R47",
        "R49",
        "R50",
        "R51",
        "R52",
        "R54",
        "R55",
        "R56",
        "R57",
        "R61",
        "R63",
        "R65",
        "R83",
        "R91",
        "R93",
        "R107",
        "R109",
        "R111",
        "R112",
        "R114",
    ]
)


def test_reports_about_values_have_their_cases():
    found = cases_by_report()
    assert found.keys() == ABOUT_VALUES
    assert not found.keys() & NOT_ABOUT_VALUES
    assert next(iter(found)) == "R01"


def test_neighbours_differ_in_one_thing():
    for first, second in NEIGHBOURS:
        differing = {
            name.removesuffix("_q").removesuffix("_kv")
            for name in first.__dataclass_fields__
            if name not in {"name", "reports"} and getattr(first, name) != getattr(second, name)
        }
        differing -= {"gaps"} if "packed" in differing else set()
        assert len(differing) == 1, (first.name, second.name, differing)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lengths_q": (1,)}, "lengths_q are"),
        ({"lengths_kv": (1, 49)}, "lengths_kv are"),
        ({"packed": "both"}, "packed queries need lengths"),
        ({"packed": "kv"}, "packed keys need lengths"),
        ({"gaps_q": (1, 1)}, "gaps_q need packed"),
        ({"page_size": 8}, "pages need lengths_kv"),
        ({"sink": 1.0}, "a sink needs softmax learnable"),
        ({"score_mod": "none of ours"}, "no score_mod"),
        ({"layout": "sideways"}, "no layout"),
        ({"layout": "kv_packed", "head_dim_v": 8}, "needs equal head_dims"),
    ],
)
def test_what_does_not_go_together(fields, message):
    with pytest.raises(ValueError, match=message):
        Case("wrong", **fields)


def test_a_covering_part_has_every_pair_of_features() -> None:
    def pairs(cases: tuple[Case, ...]) -> set[tuple[str, str]]:
        features = [sorted({*c.tags, c.dtype, c.layout}) for c in cases]
        return {pair for each in features for pair in combinations(each, 2)}

    part = covering(CASES)
    assert pairs(part) == pairs(CASES)
    assert len(part) < len(CASES) / 3
    assert covering(CASES) == part


def test_every_operation_of_a_score_mod_has_a_case() -> None:
    used = {
        node.op
        for case in OPERATIONS.values()
        for node in trace(case.callback, ()).expression.nodes
        if isinstance(node, Apply)
    }
    assert used == set(OPS)


def test_in_16_bits_nothing_else_changes() -> None:
    for case, other in zip(CASES, in_16_bits(CASES), strict=True):
        assert other.dtype in {DType.FLOAT16, DType.BFLOAT16}
        assert replace(other, dtype=case.dtype) == case
        assert other is case or case.dtype is DType.FLOAT32
