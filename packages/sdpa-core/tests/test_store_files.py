"""The files of the plan store: their bytes, and what a reader makes of each of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import pytest

from sdpa_core import AttentionProblem, DeviceSpec, Direction, DType, Plan
from sdpa_core.plan import BadPlanError, Header
from sdpa_core.store import Provenance, unwrap, wrap
from sdpa_core.testing.fake_cudnn import FakeCudnn

MakeProblem = Callable[..., AttentionProblem]
H200 = DeviceSpec.named("h200", cudnn_version=91900)
WORDS = Provenance("forward ...", "2026-12-01T00:00:00+00:00", "sdpa-core 1.0")


@pytest.fixture
def plan(make_problem: MakeProblem) -> Plan:
    return FakeCudnn().plan(make_problem(), H200, Direction.FORWARD)


# ------------------------------------------------------------------------------------ container


def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    read = Plan.from_container(plan.to_bytes(), plan.expected)
    assert read == plan
    assert read.container == plan.container
    assert (read.stored, plan.stored) == (True, False)


def test_the_graph_is_the_one_that_was_described_not_a_read_one(plan: Plan) -> None:
    assert Plan.from_container(plan.container, plan.expected).graph is plan.graph


def test_a_header_tells_what_a_plan_is_without_its_problem(plan: Plan) -> None:
    header = Header.read(plan.container)
    assert (header.cudnn_version, header.frontend_version) == (91900, 13200)
    assert (header.sm, header.sm_count, header.engine_name) == (90, 132, "fake")
    assert header.fingerprint.hex() == plan.fingerprint


def test_an_engine_s_name_is_cut_between_characters(plan: Plan) -> None:
    long = replace(plan, engine="e" * 31 + "é")
    assert Plan.from_container(long.to_bytes(), long.expected).engine == "e" * 31


def sealed(container: bytes, offset: int, field: str, value: int | bytes) -> bytes:
    """A container with another field, and a hash that fits."""
    changed = bytearray(container)
    struct.pack_into(field, changed, offset, value)
    changed[88:120] = sha256(changed[152:]).digest()
    return bytes(changed)


#: Every field: where it is, its type, another value, what the reader says.
OTHER_FIELDS: dict[str, tuple[int, str, int | bytes, str]] = {
    "magic": (0, "<8s", b"SDPAPLAM", "does not start like a plan"),
    "format": (8, "<I", 2, "plan format 2, expected is 1"),
    "blob offset": (12, "<I", 151, "blob starts at 151"),
    "blob bytes": (16, "<Q", 5, "expected are .* 5 of the blob"),
    "no blob": (16, "<Q", 0, "expected are .* 0 of the blob"),
    "workspace": (24, "<Q", 1 << 63, "claims a workspace of 9223372036854775808 bytes"),
    "cudnn": (32, "<I", 92801, "its cuDNN version is 92801, expected is 91900"),
    "frontend": (36, "<I", 12800, "its frontend version is 12800, expected is 13200"),
    "sm": (40, "<I", 100, "its compute capability is 100, expected is 90"),
    "sm count": (44, "<I", 114, "its number of multiprocessors is 114, expected is 132"),
    "bindings": (48, "<I", 4, "after 4 operands it starts at 280"),
    "all bindings": (48, "<I", 0xFFFFFFFF, "after 4294967295 operands"),
    "reserved": (52, "<I", 1, "a field of its header"),
    "key": (56, "<32s", b"k" * 32, "its key is 6b6b6b6b6b6b, expected is"),
    "engine": (120, "<32s", b"a\0b", "a field of its header"),
    "engine's text": (120, "<32s", b"\xff", "a field of its header"),
    "uid": (152, "<q", 3, "its operands are not those"),
    "bytes of an operand": (160, "<Q", 2, "its operands are not those"),
    "kind of an operand": (168, "<I", 1, "its operands are not those"),
    "flags of an operand": (172, "<I", 1, "its operands are not those"),
    "dtype of an operand": (176, "<I", 1, "its operands are not those"),
    "reserved of an operand": (180, "<I", 1, "its operands are not those"),
}


@pytest.mark.parametrize("name", OTHER_FIELDS)
def test_any_other_field_is_another_plan(name: str, plan: Plan) -> None:
    offset, field, value, words = OTHER_FIELDS[name]
    with pytest.raises(BadPlanError, match=words):
        Plan.from_container(sealed(plan.container, offset, field, value), plan.expected)


def test_damage_is_found_by_the_hash(plan: Plan) -> None:
    for at in (88, 152, len(plan.container) - 1):
        damaged = bytearray(plan.container)
        damaged[at] ^= 1
        with pytest.raises(BadPlanError, match="the hash of its contents"):
            Header.read(bytes(damaged))


def test_every_truncation_is_found(plan: Plan) -> None:
    for size in range(len(plan.container)):
        with pytest.raises(BadPlanError):
            Header.read(plan.container[:size])
    with pytest.raises(BadPlanError, match="expected are"):
        Header.read(plan.container + b"\0")


def test_a_plan_of_another_problem(plan: Plan, make_problem: MakeProblem) -> None:
    """Under the key of this one: the operands tell."""
    other = FakeCudnn().plan(make_problem(dtype=DType.FLOAT16), H200, Direction.FORWARD)
    disguised = replace(other, fingerprint=plan.fingerprint)
    with pytest.raises(BadPlanError, match="its operands are not those"):
        Plan.from_container(disguised.to_bytes(), plan.expected)


# ---------------------------------------------------------------------------------------- frame


def test_the_frame() -> None:
    data = wrap(b"the container", WORDS)
    count = struct.unpack_from("<I", data, 12)[0]
    assert data[:8] == b"SDPASTOR"
    assert struct.unpack_from("<I", data, 8) == (1,)
    assert data[16:48] == sha256(data[:16] + data[48:]).digest()
    assert json.loads(data[48 : 48 + count]) == {
        "problem": "forward ...",
        "built": "2026-12-01T00:00:00+00:00",
        "tool": "sdpa-core 1.0",
    }
    assert data[48 + count :] == b"the container"
    words, container = unwrap(data)
    assert (Provenance.read(words), container) == (WORDS, b"the container")


def test_every_truncation_and_every_flipped_bit_of_a_frame_is_found() -> None:
    data = wrap(b"c", Provenance())
    for size in range(len(data)):
        with pytest.raises(BadPlanError):
            unwrap(data[:size])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadPlanError):
            unwrap(bytes(damaged))


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [(8, 2, "store format 2, expected is 1"), (12, 0xFFFFFFFF, "claims 4294967295 bytes")],
)
def test_other_fields_of_a_frame(offset: int, value: int, words: str) -> None:
    data = bytearray(wrap(b"the container", WORDS))
    struct.pack_into("<I", data, offset, value)
    with pytest.raises(BadPlanError, match=words):
        unwrap(bytes(data))


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_a_provenance_that_is_none(data: bytes) -> None:
    with pytest.raises(BadPlanError, match="its provenance is no JSON"):
        Provenance.read(data)


def test_what_a_provenance_lacks_is_empty() -> None:
    assert Provenance.read(b'{"problem": 7, "more": 1}') == Provenance()


def test_what_now_is_told() -> None:
    made = Provenance.now("p" * 10_000)
    assert len(made.problem) == 4096
    assert made.built.endswith("+00:00")
    assert made.tool.startswith("sdpa-core")
