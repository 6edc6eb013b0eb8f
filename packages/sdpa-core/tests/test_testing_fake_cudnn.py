"""The stand-in computes what the graph says, and catches every kind of wrong operand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdpa_core.cudnn.graph import OperandKind
from sdpa_core.cudnn.uids import F16Uid
from sdpa_core.device import DeviceSpec
from sdpa_core.dtypes import DType
from sdpa_core.mask import Alignment, Band
from sdpa_core.problem import Direction
from sdpa_core.testing import CASES, Case, attention, attention_backward, problem_of, round_to
from sdpa_core.testing.fake_cudnn import FakeCudnn, OperandView

H200 = DeviceSpec.named("h200", cudnn_version=91900)

RUNNABLE = [
    case
    for case in CASES
    if "empty" not in case.tags
    and case.layout in {"bhsd", "bshd", "packed_qkv"}
    and case.dtype in {DType.FLOAT16, DType.BFLOAT16}
]


class Call:
    """A right call of one direction of a case; tests spoil it."""

    def __init__(self, case, direction):
        self.case = case
        self.fake = FakeCudnn()
        problem = problem_of(case, training=True)
        self.plan = self.fake.plan(problem, H200, direction)
        inputs = case.arrays()
        forward = attention(*inputs[:3], band=case.band, scale=case.scale)
        known = {
            **inputs._asdict(),
            "output": round_to(forward.output, case.dtype),
            "stats": forward.lse[..., None],
        }
        self.operands = {}
        for operand in (*self.plan.inputs, *self.plan.outputs):
            if operand.constant is not None:
                array = np.full(operand.shape, operand.constant)
            elif operand.kind is OperandKind.OUTPUT:
                array = np.full(operand.shape, np.nan)
            else:
                array = known[operand.role]
            self.operands[operand.uid] = OperandView(array, operand.strides, operand.dtype, 16)
        self.scalars = {F16Uid.SCALE: case.effective_scale}

    def spoil(self, role, **changes):
        uid = self.plan.graph.operand(role).uid
        self.operands[uid] = replace(self.operands[uid], **changes)

    def view(self, role):
        return self.operands[self.plan.graph.operand(role).uid]

    def execute(self):
        results = self.fake.execute(self.plan, self.operands, self.scalars)
        return {F16Uid(uid).role: array for uid, array in results.items()}


def forward():
    return Call(Case("wrong", heads=4, heads_kv=2, tokens_q=24, layout="bshd"), Direction.FORWARD)


def backward(**fields):
    return Call(Case("wrong", heads=4, heads_kv=2, **fields), Direction.BACKWARD)


@pytest.mark.parametrize("case", RUNNABLE, ids=lambda case: case.name)
def test_results_are_the_oracles(case):
    inputs = case.arrays()
    scale = float(np.float32(case.effective_scale))  # as the executor hands it on
    exact = attention(*inputs[:3], band=case.band, scale=scale)
    results = Call(case, Direction.FORWARD).execute()
    np.testing.assert_array_equal(results["output"], exact.output)
    np.testing.assert_array_equal(results["stats"], exact.lse[..., None])
    gradients = attention_backward(*inputs, band=case.band, scale=scale)
    results = Call(case, Direction.BACKWARD).execute()
    for role, gradient in gradients._asdict().items():
        np.testing.assert_array_equal(results[role], gradient)


def test_the_band_is_read_as_cudnn_reads_it():
    band = Band(5, 3, Alignment.BOTTOM_RIGHT)
    case = Case("window", tokens_q=24, band=band)
    exact = attention(*case.arrays()[:3], band=band)
    np.testing.assert_array_equal(Call(case, Direction.FORWARD).execute()["output"], exact.output)
    call = Call(case, Direction.FORWARD)
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
    call = Call(Case("one", heads=1, heads_kv=1), Direction.FORWARD)
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
    call = Call(Case("swapped", head_dim=128, head_dim_v=64), Direction.FORWARD)
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


def test_lengths_that_would_hide_keys():
    call = backward(tokens_q=64, tokens_kv=64)
    graph = call.plan.graph
    shorter = tuple(
        replace(operand, constant=63) if operand.role == "seq_len_kv" else operand
        for operand in graph.operands
    )
    call.plan = replace(call.plan, graph=replace(graph, operands=shorter))
    call.spoil("seq_len_kv", array=np.full((2, 1, 1, 1), 63))
    with pytest.raises(AssertionError, match="seq_len_kv is 63; the fake knows full lengths only"):
        call.execute()


def test_statistics_of_another_forward():
    call = backward()
    call.spoil("stats", array=call.view("stats").array / np.log(2))
    with pytest.raises(AssertionError, match=r"stats\["):
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
