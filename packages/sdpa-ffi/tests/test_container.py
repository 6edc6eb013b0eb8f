"""The parser of plan containers: it reads what the format says, and refuses everything else."""

import contextlib
import dataclasses
import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sdpa_ffi
from sdpa_ffi import Binding, BindingKind


def refuses(container, match):
    with pytest.raises(ValueError, match=match):
        sdpa_ffi.describe(container)


def test_reads_every_field(Container):
    made = Container()
    described = sdpa_ffi.describe(made.to_bytes())
    names = (
        "workspace_bytes",
        "cudnn_version",
        "frontend_version",
        "sm",
        "sm_count",
        "fingerprint",
    )
    assert {n: getattr(described, n) for n in names} == {n: getattr(made, n) for n in names}
    assert described.format == 1
    assert described.blob_bytes == len(made.blob)
    assert described.engine == "eng9_k24=7"
    assert described.bindings == (
        Binding(1, 2048, BindingKind.DEVICE_INPUT, zero_fill=False, dtype="bfloat16"),
        Binding(4, 1024, BindingKind.DEVICE_OUTPUT, zero_fill=False, dtype="bfloat16"),
        Binding(7, 0, BindingKind.HOST_SCALAR, zero_fill=False, dtype="float32"),
        Binding(9, 64, BindingKind.DEVICE_OUTPUT, zero_fill=True, dtype="float32"),
    )


@pytest.mark.parametrize("size", [0, 1, 44, 45, 46, 55, 56, 63, 64, 65, 127, 128, 1000, 100_000])
def test_checksum_agrees_with_hashlib_at_every_padding(Container, size):
    # 4 bindings are 128 bytes, so the blob's size is the length modulo the hash's block of 64.
    made = Container(blob=bytes(size + 1))
    assert sdpa_ffi.describe(made.to_bytes()).blob_bytes == size + 1


def test_engine_may_fill_its_field(Container):
    assert sdpa_ffi.describe(Container(engine=b"e" * 32).to_bytes()).engine == "e" * 32


def test_every_truncation_is_refused(Container):
    whole = Container().to_bytes()
    for size in range(len(whole)):
        refuses(whole[:size], "malformed plan container")


def test_trailing_bytes_are_refused(Container):
    refuses(Container().to_bytes() + b"\0", "header and blob need")


WRONG_FIELDS = {
    "magic": (b"SDPAPLAM", "does not start with SDPAPLAN"),
    "header_bytes": (152, "4 bindings need 280"),
    "blob_bytes": (2**64 - 1, "header and blob need"),
    "workspace_bytes": (2**63, "claims a workspace of"),
    "binding_count": (2**32 - 1, "1 to 128 are possible"),
    "reserved": (1, "reserved field"),
    "sha256": (bytes(32), "damaged"),
    "engine": (b"a\0b", "not NUL padded"),
    "blob": (b"", "header and blob need"),
    "bindings": ([], "1 to 128 are possible"),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_wrong_field_is_refused(Container, name):
    value, match = WRONG_FIELDS[name]
    refuses(dataclasses.replace(Container(), **{name: value}).to_bytes(), match)


@pytest.mark.parametrize(("version", "package"), [(0, "sdpa-core"), (2, "sdpa-ffi")])
def test_other_format_names_both_and_what_to_upgrade(Container, version, package):
    refuses(
        Container(format=version).to_bytes(),
        rf"format {version}, this executor reads format 1; .*pip install -U {package}",
    )


WRONG_BINDINGS = {
    "kind": ((1, 8, 3, 0, 2, 0), "unknown kind 3"),
    "dtype 0": ((1, 8, 0, 0, 0, 0), "unknown dtype 0"),
    "dtype 12": ((1, 8, 0, 0, 12, 0), "unknown dtype 12"),
    "flags": ((1, 8, 1, 2, 2, 0), "unknown flags"),
    "reserved": ((1, 8, 1, 0, 2, 1), "reserved"),
    "bytes": ((1, 2**63, 0, 0, 2, 0), "claims 9223372036854775808 bytes"),
    "zero-filled input": ((1, 8, 0, 1, 2, 0), "zero-filled but is no output"),
    "scalar bytes": ((1, 4, 2, 0, 3, 0), "host scalar"),
    "scalar dtype": ((1, 0, 2, 0, 2, 0), "host scalar"),
}


@pytest.mark.parametrize("name", WRONG_BINDINGS)
def test_wrong_binding_is_refused(Container, name):
    binding, match = WRONG_BINDINGS[name]
    refuses(Container(bindings=[binding]).to_bytes(), match)


@pytest.mark.parametrize("uids", [(1, 1), (2, 1), (0, -1)])
def test_uids_must_ascend_strictly(Container, uids):
    bindings = [(uid, 8, 0, 0, 2, 0) for uid in uids]
    refuses(Container(bindings=bindings).to_bytes(), "uids must ascend strictly")


@pytest.mark.parametrize("argument", ["text", None, 7])
def test_only_bytes_are_read(argument):
    with pytest.raises(TypeError):
        sdpa_ffi.describe(argument)


@given(noise=st.binary(max_size=600))
def test_noise_is_refused(noise):
    refuses(noise, "malformed|format")
    refuses(b"SDPAPLAN\x01\0\0\0" + noise, "malformed")


@given(position=st.integers(0, 152 + 2 * 32 + 75 - 1), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_is_provenance(position, value):
    # The bytes that only inform may hold anything; all others are structure or under the checksum.
    whole = bytearray(reference_container())
    unchanged = whole[position] == value
    whole[position] = value
    informs = 24 <= position < 48 or 56 <= position < 88 or 120 <= position < 152
    if unchanged or informs:
        # Only a huge workspace or a badly padded name is refused here.
        with contextlib.suppress(ValueError):
            sdpa_ffi.describe(bytes(whole))
    else:
        refuses(bytes(whole), "malformed|format")


def reference_container():
    table = struct.pack("<qQIIII", 1, 2048, 0, 0, 2, 0) + struct.pack("<qQIIII", 4, 8, 1, 0, 3, 0)
    blob = bytes(75)
    payload = table + blob
    header = struct.pack(
        "<8sIIQQIIIIII32s32s32s",
        b"SDPAPLAN", 1, 216, len(blob), 0, 91900, 13200, 90, 132, 2, 0,
        bytes(32), hashlib.sha256(payload).digest(), b"engine",
    )  # fmt: skip
    return header + payload
