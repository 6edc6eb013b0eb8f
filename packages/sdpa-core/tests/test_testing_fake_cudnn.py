"""The stand-in computes what the graph says, and catches every kind of wrong operand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdpa_core.cudnn.dimensions import pads_query
from sdpa_core.cudnn.graph import OperandKind, Rule
from sdpa_core.cudnn.memory import memory_spec, on_query_side
from sdpa_core.cudnn.rules import reasons
from sdpa_core.cudnn.uids import F16Uid
from sdpa_core.device import DeviceSpec
from sdpa_core.dtypes import DType
from sdpa_core.mask import Alignment, Band
from sdpa_core.problem import Direction, Softmax
from sdpa_core.testing import (
    CASES,
    Case,
    DropoutState,
    attention,
    attention_backward,
    features_of,
    place_all,
    problem_of,
    round_to,
)
from sdpa_core.testing.conformance import with_slack
from sdpa_core.testing.fake_cudnn import FakeCudnn, OperandView

H200 = DeviceSpec.named("h200", cudnn_version=91900)
NEWEST = DeviceSpec.named("h200", cudnn_version=92800)
FORWARD, BACKWARD = Direction.FORWARD, Direction.BACKWARD

CASE = {case.name: case for case in CASES}
SEED = 2**33 + 5


def runnable(device, direction):
    """16-bit cases that cuDNN takes as they lie in memory."""
    return [
        case
        for case in CASES
        if "empty" not in case.tags
        and not reasons(problem_of(case, training=direction is BACKWARD), device, direction)
    ]


class Call:
    """A right call of one direction of a case; tests spoil it."""

    def __init__(self, case, direction, device=H200, *, max_logit=False, slack=0.0):
        self.case, self.direction = case, direction
        self.fake = FakeCudnn()
        training = direction is BACKWARD
        self.problem = problem_of(
            case, training=training, return_lse=not max_logit, return_max_logit=max_logit
        )
        self.plan = self.fake.plan(self.problem, device, direction)
        self.inputs = with_slack(case, slack)
        self.operands, self.scalars = {}, {}
        known = self.known()
        for operand in self.plan.scalars:
            self.scalars[operand.uid] = known[operand.role]
        for operand in (*self.plan.inputs, *self.plan.outputs):
            spec = memory_spec(operand, self.problem)
            if operand.kind is OperandKind.OUTPUT:
                array = np.full(spec.shape, np.nan)
            elif operand.constant is not None:
                array = np.full(spec.shape, operand.constant)
            elif operand.derived is not None:
                array = derived(operand, known[operand.derived.source])
            else:
                array = with_room(known[operand.role], spec)
            self.operands[operand.uid] = OperandView(array, spec.strides, operand.dtype, 16)

    @property
    def tokens_counted(self):
        """Query tokens that the graph declares, by which dropout counts."""
        return self.plan.graph.operand("query").shape[2]

    @property
    def state(self):
        return DropoutState(SEED, 0, self.tokens_counted) if self.case.dropout_p else None

    @property
    def features(self):
        # The executor hands cuDNN a float32.
        scale = float(np.float32(self.case.effective_scale))
        return {**features_of(self.case, self.inputs, self.state), "scale": scale}

    def exact(self):
        inputs = self.inputs.operands
        results = attention(*inputs[:3], **self.features)._asdict()
        if self.direction is BACKWARD:
            results = attention_backward(*inputs, **self.features)._asdict()
        return {name: array for name, array in results.items() if array is not None}

    def known(self):
        """Everything by role, in its memory's order of axes."""
        case, placed = self.case, place_all(self.case, self.inputs)
        known = {role: operand.read() for role, operand in placed.items()}
        for role in ("query", "key", "value", "grad_output"):
            if case.packed:  # cuDNN wants numbers in gaps too
                known[role] = np.where(np.isnan(known[role]), 0.0, known[role])
        if case.page_size is not None:
            known |= {role: known[role].swapaxes(1, 2) for role in ("key", "value")}
        for role in ("page_table_k", "page_table_v"):
            if role in known:
                known[role] = known[role][:, None, :, None]
        if "mask" in known:
            known["bias"] = np.where(known["mask"] != 0, 0.0, -np.inf)
        if "sink" in known:
            known["sink"] = known["sink"].reshape(1, -1, 1, 1)
        if "alibi_slopes" in known:
            known["alibi_slopes"] = known["alibi_slopes"].reshape(-1, case.heads, 1, 1)
        known["dropout_seed"] = np.full((1, 1, 1, 1), SEED)
        known["dropout_offset"] = np.zeros((1, 1, 1, 1), np.int64)
        known["scale"] = case.effective_scale
        numbers = [array for array in self.inputs.auxiliary if array.ndim == 0]
        tensors = [array for array in self.inputs.auxiliary if array.ndim]
        known |= {f"score_mod_scalar_{i}": float(x) for i, x in enumerate(numbers)}
        known |= {f"score_mod_{i}": x for i, x in enumerate(tensors)}
        forward = attention(*self.inputs.operands[:3], **self.features)
        known["output"] = round_to(forward.output, case.dtype)
        known["stats"] = forward.lse[..., None]
        if case.packing_q is not None:
            for role in ("output", "stats"):
                graph = self.plan.graph
                if graph.has(role) and graph.operand(role).ragged is not None:
                    known[role] = case.packing_q.pack(known[role], fill=0.0)
        return known

    def spoil(self, role, **changes):
        uid = self.plan.graph.operand(role).uid
        self.operands[uid] = replace(self.operands[uid], **changes)

    def view(self, role):
        return self.operands[self.plan.graph.operand(role).uid]

    def launch(self):
        results = self.fake.execute(self.plan, self.operands, self.scalars)
        return {F16Uid(uid).role: array for uid, array in results.items()}

    def execute(self):
        """Results, padded, as many sequences and rows as the problem has."""
        return {role: self.padded(role, array) for role, array in self.launch().items()}

    def padded(self, role, array):
        case = self.case
        if role == "grad_bias" and case.bias[2] == "1":
            return array.sum(axis=2, keepdims=True)
        if role in {"grad_bias", "grad_sink"}:
            return array
        queries = on_query_side(role)
        packing = case.packing_q if queries else case.packing_kv
        if self.plan.graph.operand(role).ragged is not None:
            fill = -np.inf if role == "stats" else 0.0
            return packing.unpack(array, fill=fill)
        return array[: case.batch, :, : case.tokens_q if queries else case.tokens_kv]


def derived(operand, source):
    source = np.asarray(source).astype(np.int64)
    if operand.derived.rule is Rule.DIFFERENCES:
        source = np.diff(source)
    filling = source[-1] if operand.derived.rule is Rule.OFFSETS else 0
    count = operand.shape[0]
    full = np.concatenate([source, np.full(count - len(source), filling)])
    full = (operand.derived.multiplier * full).reshape(-1, 1, 1, 1)
    return np.array(np.broadcast_to(full, operand.shape))


def with_room(array, spec):
    """As a graph declares it: one row for all, or in a larger array of zeros."""
    if array.shape == spec.shape:
        return array
    repeated = array.ndim == 4 and array.shape[2] == 1 and spec.strides[2] == 0
    if repeated:
        return np.broadcast_to(array, spec.shape)
    whole = np.zeros(spec.shape)
    whole[tuple(slice(n) for n in array.shape)] = array
    return whole


def forward():
    return Call(Case("wrong", heads=4, heads_kv=2, tokens_q=24, layout="bshd"), FORWARD)


def backward(**fields):
    return Call(Case("wrong", heads=4, heads_kv=2, **fields), BACKWARD)


def packed(direction=FORWARD, device=H200, **fields):
    usual = {"lengths_q": (20, 7), "lengths_kv": (11, 30), "packed": "both"}
    return Call(Case("packed", 2, 4, 2, 20, 30, **{**usual, **fields}), direction, device)


def assert_equal(results, exact):
    for role, array in results.items():
        wanted = exact["lse"][..., None] if role == "stats" else exact[role]
        np.testing.assert_allclose(array.reshape(wanted.shape), wanted, 1e-9, 1e-12, err_msg=role)


def has_keyless_sequences(case):
    return 0 in (case.lengths_kv or ())


def every_call():
    """Of the cases that the rules take; those with sequences without keys where they have no
    fault.
    """
    for device, version in ((H200, "9.19"), (NEWEST, "9.28")):
        for direction in (FORWARD, BACKWARD):
            for case in runnable(device, direction):
                if device is NEWEST or not has_keyless_sequences(case):
                    name = f"{case.name}-{direction}-{version}"
                    yield pytest.param(case, direction, device, id=name)


@pytest.mark.parametrize(("case", "direction", "device"), list(every_call()))
def test_results_are_the_oracles(case, direction, device):
    call = Call(case, direction, device)
    assert_equal(call.execute(), call.exact())


@pytest.mark.parametrize("bias", ["bhss", "1hss", "11ss", "b1ss", "111s"])
def test_the_gradient_of_a_bias_that_is_part_of_a_function(bias):
    call = Call(Case("softcap", bias=bias, softcap=1.0, band=Band.causal()), BACKWARD)
    assert call.plan.graph.score_mod is not None
    assert_equal(call.execute(), call.exact())


@pytest.mark.parametrize("direction", [FORWARD, BACKWARD])
def test_alibi_in_a_window_up_to_the_diagonal(direction):
    call = Call(Case("alibi", alibi="standard", band=Band(3, 0)), direction)
    assert_equal(call.execute(), call.exact())


def test_what_the_fake_was_tried_on():
    features = {"bias", "mask", "window", "alibi", "sink", "softcap", "score_mod", "dropout"}
    features |= {"lengths", "packed", "gaps"}
    assert features <= frozenset().union(*(case.tags for case in runnable(NEWEST, BACKWARD)))
    assert features | {"paged"} <= frozenset().union(
        *(case.tags for case in runnable(NEWEST, FORWARD))
    )


def test_the_band_is_read_as_cudnn_reads_it():
    band = Band(5, 3, Alignment.BOTTOM_RIGHT)
    case = Case("window", tokens_q=24, band=band)
    exact = attention(*case.arrays()[:3], band=band)
    np.testing.assert_array_equal(Call(case, FORWARD).execute()["output"], exact.output)
    call = Call(case, FORWARD)
    options = {**dict(call.plan.graph.options), "diagonal_band_left_bound": 5}
    graph = replace(call.plan.graph, options=tuple(options.items()))
    call.plan = replace(call.plan, graph=graph)
    assert (call.execute()["output"] != exact.output).any()


def test_plans_and_executions_are_recorded():
    call = forward()
    assert call.fake.plans == {call.plan.fingerprint: call.plan}
    call.execute()
    call.execute()
    assert call.fake.executed == [call.plan, call.plan]
    assert call.plan.container.startswith(b"SDPAPLAN")


def test_strides_of_axes_of_length_one_do_not_matter():
    call = Call(Case("one", heads=1, heads_kv=1), FORWARD)
    batch, _, *inner = call.view("key").strides
    call.spoil("key", strides=(batch, 7, *inner))
    call.execute()


@pytest.mark.parametrize("role", ["query", "key", "value", "output", "stats"])
def test_missing(role):
    call = forward()
    del call.operands[call.plan.graph.operand(role).uid]
    with pytest.raises(AssertionError, match=rf"{role} \(uid \d\) is missing"):
        call.execute()


def test_missing_statistics_of_a_backward():
    call = backward()
    del call.operands[F16Uid.STATS]
    with pytest.raises(AssertionError, match=r"stats \(uid 5\) is missing"):
        call.execute()


def test_unknown():
    call = forward()
    call.operands[F16Uid.GRAD_OUTPUT] = call.view("output")
    call.scalars[77] = 1.0
    with pytest.raises(AssertionError, match=r"uid 6 is no operand(.|\n)*uid 77 is no scalar"):
        call.execute()


def test_missing_scale():
    call = forward()
    call.scalars.clear()
    with pytest.raises(AssertionError, match=r"scale \(uid 100\) is missing"):
        call.execute()


def test_wrong_shape():
    call = forward()
    call.spoil("value", array=call.view("value").array[:, :, :-1])
    with pytest.raises(AssertionError, match=r"value \(uid 3\) has shape .*47.*, described .*48"):
        call.execute()


def test_wrong_strides():
    call = forward()
    rows = (4 * 24 * 64, 24 * 64, 64, 1)
    call.spoil("query", strides=rows)
    with pytest.raises(AssertionError, match=r"query \(uid 1\) has strides \[6144, 1536, 64, 1\]"):
        call.execute()


def test_swapped_operands():
    call = Call(Case("swapped", head_dim=128, head_dim_v=64), FORWARD)
    key, value = F16Uid.KEY, F16Uid.VALUE
    call.operands[key], call.operands[value] = call.operands[value], call.operands[key]
    with pytest.raises(AssertionError, match=r"key \(uid 2\) has(.|\n)*value \(uid 3\) has"):
        call.execute()


def test_result_of_the_wrong_layout():
    call = backward(layout="bshd")
    call.spoil("grad_key", strides=(2 * 48 * 64, 48 * 64, 64, 1))
    with pytest.raises(AssertionError, match=r"grad_key \(uid 8\) has strides"):
        call.execute()


def test_wrong_dtype():
    call = forward()
    call.spoil("key", dtype=DType.FLOAT16)
    call.spoil("stats", dtype=DType.BFLOAT16)
    faults = r"key \(uid 2\) has dtype float16, described bfloat16(.|\n)*stats \(uid 5\) has dtype"
    with pytest.raises(AssertionError, match=faults):
        call.execute()


def test_unaligned_address():
    call = forward()
    call.spoil("output", alignment=2)
    with pytest.raises(AssertionError, match=r"output \(uid 4\) has an address aligned to 2 bytes"):
        call.execute()
    call.spoil("output", alignment=None)
    call.execute()


def test_wrong_constant():
    call = backward(tokens_q=64, tokens_kv=64)
    call.spoil("seq_len_kv", array=np.zeros((2, 1, 1, 1)))
    with pytest.raises(AssertionError, match=r"seq_len_kv \(uid 21\) has values other than .* 64"):
        call.execute()


def test_constant_lengths_are_read_from_the_operand():
    call = backward(tokens_q=64, tokens_kv=64)
    graph = call.plan.graph
    shorter = tuple(
        replace(operand, constant=63) if operand.role == "seq_len_kv" else operand
        for operand in graph.operands
    )
    call.plan = replace(call.plan, graph=replace(graph, operands=shorter))
    call.spoil("seq_len_kv", array=np.full((2, 1, 1, 1), 63))
    with pytest.raises(AssertionError, match=r"output\["):
        call.execute()


def test_statistics_of_another_forward():
    call = backward()
    call.spoil("stats", array=call.view("stats").array / np.log(2))
    with pytest.raises(AssertionError, match=r"output\["):
        call.execute()


def test_output_of_another_forward():
    call = backward()
    call.spoil("output", array=call.view("output").array[::-1])
    with pytest.raises(AssertionError, match=r"output\["):
        call.execute()


def test_unknown_option():
    call = forward()
    options = (*call.plan.graph.options, ("dropout", 0.1))
    call.plan = replace(call.plan, graph=replace(call.plan.graph, options=options))
    with pytest.raises(AssertionError, match=r"does not know the options \['dropout'\]"):
        call.execute()


def test_largest_logits_come_row_by_row():
    call = Call(CASE["packed_bfloat16"], FORWARD, max_logit=True)
    rows = call.execute()["max_logit"]
    np.testing.assert_allclose(np.nanmax(rows, axis=(0, 2, 3)), call.exact()["max_logit"])


def test_rows_of_no_sequence_are_garbage_unless_they_are_cleared():
    results = packed(gaps_q=(3, 2), packed_tail=1).launch()
    gaps = np.r_[20:23, 30:33]
    assert (results["output"][gaps] == 0).all()
    assert np.isnan(results["stats"][gaps]).all()


def test_offsets_beyond_what_32_bits_hold():
    call = packed(BACKWARD)
    uid = call.plan.graph.operand("query").ragged
    array = call.operands[uid].array
    words = np.stack([array & 0xFFFFFFFF, array >> 32], axis=-1).astype(np.uint32)
    call.operands[uid] = OperandView(words, (2, 2, 2, 2, 1), DType.INT64, 16)
    call.execute()
    words[1:, ..., 1] = 7
    with pytest.raises(AssertionError, match=r"sequences of query end at|no multiples"):
        call.execute()


@pytest.mark.parametrize(
    ("role", "change", "message"),
    [
        ("offsets_query", lambda x: x[::-1].copy(), "offsets_query falls"),
        ("offsets_query", lambda x: x + 8, r"no multiples of a token, 256 elements"),
        ("offsets_query", lambda x: x + 256, "does not start at 0"),
        ("offsets_query", lambda x: 2 * x, r"sequences of query end at 54, its memory at 27"),
        ("offsets_key", lambda x: x // 2 // 128 * 128, "sequences of key overlap"),
        ("seq_len_q", lambda x: 2 * x, "sequences of query overlap"),
        ("seq_len_kv", lambda x: x - 31, "negative numbers"),
        ("offsets_value", lambda x: x, None),
    ],
)
def test_wrong_offsets_and_lengths(role, change, message):
    call = packed(BACKWARD)
    if message is None:
        assert not call.plan.graph.has(role), "value shares the key's offsets"
        return
    call.spoil(role, array=change(call.view(role).array))
    with pytest.raises(AssertionError, match=message):
        call.execute()


def test_offsets_of_other_sequences_than_the_querys():
    call = packed(BACKWARD, head_dim_v=32)
    output = call.plan.graph.operand("output").ragged
    array = call.operands[output].array.copy()
    array[1] -= 4 * 32
    call.operands[output] = replace(call.operands[output], array=array)
    with pytest.raises(AssertionError, match="output starts its sequences at"):
        call.execute()


def test_packed_memory_must_be_as_described():
    call = packed()
    call.spoil("key", strides=(2 * 64 + 8, 64, 1))
    with pytest.raises(AssertionError, match=r"key \(uid 2\) has strides \[136, 64, 1\]"):
        call.execute()


def test_padded_memory_for_packed_sequences_is_noticed():
    call = packed()
    call.spoil("query", array=np.zeros((2, 4, 20, 64)), strides=(20 * 256, 64, 256, 1))
    with pytest.raises(AssertionError, match=r"query \(uid 1\) has shape \[2, 4, 20, 64\]"):
        call.execute()


@pytest.mark.parametrize("name", ["lengths_bfloat16", "paged"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_lies_past_a_length_reaches_results(name, bad):
    """As in cuDNN 9.19: an adapter that leaves it there is found out."""
    call = Call(CASE[name], FORWARD)
    if name == "paged":
        call.view("key").array[0] = bad  # where table entries past the length lead
    else:
        call.view("key").array[:, :, -1] = bad
    assert np.isnan(call.execute()["output"]).any()


def test_numbers_past_a_length_do_not_matter():
    call = Call(CASE["lengths_bfloat16"], FORWARD, slack=1e4)
    assert_equal(call.execute(), call.exact())


@pytest.mark.parametrize("name", ["packed_no_keys", "lengths_no_keys_bfloat16"])
def test_sequences_without_keys_are_nan_before_9_25(name):
    case = CASE[name]
    empty = case.lengths_kv.index(0)
    old = Call(case, FORWARD).execute()
    for role in ("output", "stats"):
        assert np.isnan(old[role][empty, :, 0]).all()
        assert not np.isnan(old[role][np.arange(case.batch) != empty]).any()
    new = Call(case, FORWARD, NEWEST)
    assert_equal(new.execute(), new.exact())


def test_dropout_counts_with_the_declared_tokens():
    call = Call(CASE["dropout"], FORWARD)
    assert call.tokens_counted == 20
    kept = call.execute()["output"]
    call.spoil("dropout_seed", array=np.full((1, 1, 1, 1), SEED + 1))
    assert (call.execute()["output"] != kept).any()
    assert packed(dropout_p=0.2).tokens_counted == 20


def test_a_single_query_with_a_sink_comes_as_two_rows():
    case = CASE["sink_decode"]
    assert case.softmax is Softmax.LEARNABLE
    assert pads_query(problem_of(case))
    assert Call(case, FORWARD).view("query").array.shape[2] == 2


def test_statistics_alone_tell_a_sink_that_the_backward_graph_does_not_know():
    call = Call(CASE["off_by_one"], BACKWARD)
    assert not call.plan.graph.has("sink")
    call.execute()
    call.spoil("stats", array=call.view("stats").array + 0.1)
    with pytest.raises(AssertionError, match=r"output\["):
        call.execute()


def test_page_tables_are_followed():
    call = Call(CASE["paged_value_table_float16"], FORWARD)
    call.spoil("page_table_v", array=call.view("page_table_k").array)
    exact = call.exact()["output"]
    assert (np.abs(call.execute()["output"] - exact) > 0.1).any()


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("lengths_bfloat16", "use_padding_mask", "lengths go with use_padding_mask"),
        ("paged", "paged_attention_max_seq_len_kv", "page tables go with"),
    ],
)
def test_operands_without_their_option(name, option, message):
    call = Call(CASE[name], FORWARD)
    options = tuple(pair for pair in call.plan.graph.options if pair[0] != option)
    call.plan = replace(call.plan, graph=replace(call.plan.graph, options=options))
    with pytest.raises(AssertionError, match=message):
        call.execute()


def test_a_wrong_constant_of_a_scalar():
    call = forward()
    fixed = tuple(
        replace(operand, constant=0.5) if operand.role == "scale" else operand
        for operand in call.plan.graph.operands
    )
    call.plan = replace(call.plan, graph=replace(call.plan.graph, operands=fixed))
    with pytest.raises(AssertionError, match=r"scale \(uid 100\) is 0.125, not the constant 0.5"):
        call.execute()
