"""The binary form of a plan, byte by byte, and the graphs that plans are made of."""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import sha256

import pytest

from sdpa_core import (
    Alignment,
    AttentionProblem,
    Band,
    DeviceSpec,
    Direction,
    DType,
    Plan,
    TensorSpec,
)
from sdpa_core.cudnn.builder import describe
from sdpa_core.cudnn.graph import GraphSpec, OperandKind
from sdpa_core.cudnn.uids import F16Uid
from sdpa_core.plan import DTYPE_CODES, FORMAT, KIND_CODES, version_number

MakeProblem = Callable[..., AttentionProblem]
H200 = DeviceSpec.named("h200", cudnn_version=91900)
FORWARD, BACKWARD = Direction


def make_plan(graph: GraphSpec) -> Plan:
    return Plan(
        graph=graph,
        blob=b"the blob",
        workspace_bytes=1 << 33,
        cudnn_version=91900,
        frontend_version="1.32.0",
        sm=90,
        sm_count=132,
        fingerprint="ab" * 32,
        engine="eng9",
    )


def test_the_container(make_problem: MakeProblem) -> None:
    graph = describe(make_problem(), H200, FORWARD)
    data = make_plan(graph).to_bytes()
    count = len(graph.operands)
    assert data[:8] == b"SDPAPLAN"
    assert struct.unpack_from("<II", data, 8) == (FORMAT, 152 + 32 * count)
    assert struct.unpack_from("<QQ", data, 16) == (8, 1 << 33)
    assert struct.unpack_from("<IIIIII", data, 32) == (91900, 13200, 90, 132, count, 0)
    assert data[56:88] == bytes.fromhex("ab" * 32)
    assert data[88:120] == sha256(data[152:]).digest()
    assert data[120:152] == b"eng9".ljust(32, b"\0")
    for index, operand in enumerate(graph.operands):
        fields = struct.unpack_from("<qQIIII", data, 152 + 32 * index)
        kind, dtype = KIND_CODES[operand.kind], DTYPE_CODES[operand.dtype]
        assert fields == (operand.uid, operand.extent, kind, 0, dtype, 0)
    assert data[152 + 32 * count :] == b"the blob"


def test_a_long_engine_name_is_cut() -> None:
    plan = make_plan(GraphSpec("sdpa", DType.FLOAT16, (), ()))
    long = Plan(**{**plan.__dict__, "engine": "e" * 40})
    assert long.to_bytes()[120:152] == b"e" * 32


@pytest.mark.parametrize(
    ("version", "number"),
    [("1.32.0", 13200), ("1.28", 12800), ("2.0.1rc1", 20001), ("1.5.10", 10510)],
)
def test_version_numbers(version: str, number: int) -> None:
    assert version_number(version) == number


def test_uids_are_frozen() -> None:
    """Saved plans and exported programs hold these numbers."""
    assert {uid.role: int(uid) for uid in F16Uid} == {
        "query": 1,
        "key": 2,
        "value": 3,
        "output": 4,
        "stats": 5,
        "grad_output": 6,
        "grad_query": 7,
        "grad_key": 8,
        "grad_value": 9,
        "bias": 10,
        "grad_bias": 11,
        "sink": 12,
        "grad_sink": 13,
        "max_logit": 14,
        "seq_len_q": 20,
        "seq_len_kv": 21,
        "cu_seq_len_q": 22,
        "cu_seq_len_kv": 23,
        "offsets_query": 30,
        "offsets_key": 31,
        "offsets_value": 32,
        "offsets_output": 33,
        "offsets_stats": 34,
        "offsets_grad_output": 35,
        "offsets_grad_query": 36,
        "offsets_grad_key": 37,
        "offsets_grad_value": 38,
        "offsets_max_logit": 39,
        "page_table_k": 40,
        "page_table_v": 41,
        "dropout_seed": 50,
        "dropout_offset": 51,
        "alibi_slopes": 60,
        "scale": 100,
    }


def roles(graph: GraphSpec, kind: OperandKind) -> list[str]:
    return [operand.role for operand in graph.operands if operand.kind is kind]


def test_forward_graph(make_problem: MakeProblem) -> None:
    graph = describe(make_problem(dv=128, band=Band.causal()), H200, FORWARD)
    assert graph.operation == "sdpa"
    assert roles(graph, OperandKind.INPUT) == ["query", "key", "value"]
    assert roles(graph, OperandKind.OUTPUT) == ["output", "stats"]
    assert roles(graph, OperandKind.HOST_SCALAR) == ["scale"]
    assert graph.operand("output").shape == (2, 4, 128, 128)
    assert graph.operand("stats").spec == TensorSpec.dense((2, 4, 128, 1), DType.FLOAT32)
    assert dict(graph.options) == {
        "diagonal_alignment": Alignment.TOP_LEFT,
        "diagonal_band_right_bound": 0,
        "generate_stats": True,
    }


def test_inference_asks_for_no_stats(make_problem: MakeProblem) -> None:
    graph = describe(make_problem(training=False), H200, FORWARD)
    assert not graph.has("stats")
    assert dict(graph.options) == {"generate_stats": False}
    asked = describe(make_problem(training=False, return_lse=True), H200, FORWARD)
    assert asked.has("stats")


def test_backward_graph(make_problem: MakeProblem) -> None:
    graph = describe(make_problem(heads_kv=2, deterministic=True), H200, BACKWARD)
    assert graph.operation == "sdpa_backward"
    inputs = ["query", "key", "value", "output", "stats", "grad_output"]
    assert roles(graph, OperandKind.INPUT) == inputs
    assert roles(graph, OperandKind.OUTPUT) == ["grad_query", "grad_key", "grad_value"]
    assert graph.operand("grad_key").shape == (2, 2, 128, 64)
    assert dict(graph.options) == {"use_deterministic_algorithm": True}


def test_a_left_bound_counts_the_diagonal(make_problem: MakeProblem) -> None:
    graph = describe(make_problem(band=Band(3, 0)), H200, FORWARD)
    assert dict(graph.options)["diagonal_band_left_bound"] == 4


def test_results_are_stored_like_their_operands() -> None:
    """[B, S, H, D] in memory, and all three packed into one buffer."""
    shape, packed = (2, 4, 16, 64), (16 * 3 * 256, 64, 3 * 256, 1)
    operand = TensorSpec(shape, packed, DType.FLOAT16)
    problem = AttentionProblem.of(operand, operand, operand, training=True)
    dense = (16 * 256, 64, 256, 1)
    assert describe(problem, H200, FORWARD).operand("output").strides == dense
    graph = describe(problem, H200, BACKWARD)
    for role in ("grad_query", "grad_key", "grad_value"):
        assert graph.operand(role).strides == dense
    for role in ("query", "key", "value"):
        assert graph.operand(role).strides == packed


def test_operands_are_in_ascending_uid(make_problem: MakeProblem) -> None:
    for direction in Direction:
        uids = [o.uid for o in describe(make_problem(skv=64), H200, direction).operands]
        assert uids == sorted(uids)
