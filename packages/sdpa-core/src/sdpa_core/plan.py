"""A plan: cuDNN's serialized graph, and what must be handed to it.

``Plan.to_bytes`` is the one binary form: what the native executor parses, XLA programs carry and
the store keeps. All integers are little endian.

| offset | bytes | field                                                                    |
|-------:|------:|--------------------------------------------------------------------------|
|      0 |     8 | magic ``SDPAPLAN``                                                       |
|      8 |     4 | format                                                                   |
|     12 |     4 | offset of the blob                                                       |
|     16 |     8 | bytes of the blob                                                        |
|     24 |     8 | bytes of workspace                                                       |
|     32 |     4 | cuDNN version, as ``cudnnGetVersion()``                                  |
|     36 |     4 | frontend version, ``major * 10000 + minor * 100 + patch``                |
|     40 |     4 | compute capability, ``major * 10 + minor``                               |
|     44 |     4 | multiprocessors                                                          |
|     48 |     4 | number of bindings                                                       |
|     52 |     4 | 0                                                                        |
|     56 |    32 | fingerprint of the problem                                               |
|     88 |    32 | sha256 of everything from offset 152 on: integrity, not trust            |
|    120 |    32 | name of cuDNN's engine, UTF-8, padded with NUL                           |
|    152 |  32 n | bindings: i64 uid, u64 bytes, u32 kind, u32 flags, u32 dtype, u32 0      |
|        |       | (flags: 1, clear the operand before each launch)                         |
|        |       | the blob                                                                 |
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from .cudnn.graph import GraphSpec, Operand, OperandKind
from .dtypes import DType

MAGIC = b"SDPAPLAN"
FORMAT = 1

_HEADER = struct.Struct("<8sIIQQIIIIII32s32s32s")
_BINDING = struct.Struct("<qQIIII")
_LARGEST_SIZE = (1 << 63) - 1  # frameworks hand on sizes as signed 64-bit integers

KIND_CODES: Mapping[OperandKind, int] = {
    OperandKind.INPUT: 0,
    OperandKind.OUTPUT: 1,
    OperandKind.HOST_SCALAR: 2,
}
DTYPE_CODES: Mapping[DType, int] = {
    DType.FLOAT16: 1,
    DType.BFLOAT16: 2,
    DType.FLOAT32: 3,
    DType.INT32: 4,
    DType.INT64: 5,
    DType.UINT8: 6,
    DType.BOOL: 10,
    DType.FLOAT64: 11,
}


class BadPlanError(Exception):
    """These bytes are not the plan that was expected; the text is one sentence."""


class Header(NamedTuple):
    """The first 152 bytes of a container, in their order; see the table above."""

    magic: bytes
    format: int
    blob_offset: int
    blob_bytes: int
    workspace_bytes: int
    cudnn_version: int
    frontend_version: int
    sm: int
    sm_count: int
    bindings: int
    reserved: int
    fingerprint: bytes
    sha256: bytes
    engine: bytes

    @classmethod
    def read(cls, container: bytes) -> Header:
        """The header of a container that is whole.

        Checked is what a container says of itself: sizes, offsets, its hash. For whom it was built
        is the caller's to compare.

        Raises:
            BadPlanError: it contradicts itself.
        """
        if len(container) < _HEADER.size:
            raise BadPlanError(
                f"it has {len(container)} bytes, the header of a plan alone has {_HEADER.size}"
            )
        header = cls(*_HEADER.unpack_from(container))
        if header.magic != MAGIC:
            raise BadPlanError("it does not start like a plan")
        if header.format != FORMAT:
            raise BadPlanError(f"it has plan format {header.format}, expected is {FORMAT}")
        offset = _HEADER.size + header.bindings * _BINDING.size
        if header.blob_offset != offset:
            raise BadPlanError(
                f"its blob starts at {header.blob_offset}, after {header.bindings} operands it "
                f"starts at {offset}"
            )
        if header.blob_bytes == 0 or offset + header.blob_bytes != len(container):
            raise BadPlanError(
                f"it has {len(container)} bytes, expected are {offset} and {header.blob_bytes} "
                f"of the blob"
            )
        if header.sha256 != sha256(memoryview(container)[_HEADER.size :]).digest():
            raise BadPlanError("the hash of its contents is not the one in its header")
        name = header.engine.rstrip(b"\0")
        if header.reserved != 0 or b"\0" in name or not _is_text(name):
            raise BadPlanError("a field of its header holds what no plan holds")
        return header

    @property
    def engine_name(self) -> str:
        return self.engine.rstrip(b"\0").decode()


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a plan before it is built or read: everything but what cuDNN adds.

    Attributes:
        graph: the description of the problem; never read from anywhere.
        fingerprint: the key, 64 hexadecimal digits.
        cudnn_version, frontend_version, sm, sm_count: as in ``Plan``.
    """

    graph: GraphSpec
    fingerprint: str
    cudnn_version: int
    frontend_version: str
    sm: int
    sm_count: int

    def check(self, header: Header, bindings: bytes) -> None:
        """Raise ``BadPlanError`` unless header and bindings are those of this plan."""
        wanted: dict[str, int | bytes] = {
            "fingerprint": bytes.fromhex(self.fingerprint),
            "cudnn_version": self.cudnn_version,
            "frontend_version": version_number(self.frontend_version),
            "sm": self.sm,
            "sm_count": self.sm_count,
        }
        for name, value in wanted.items():
            found = getattr(header, name)
            if found != value:
                raise BadPlanError(
                    f"its {_NAMES[name]} is {_shown(found)}, expected is {_shown(value)}"
                )
        if bindings != _bindings(self.graph):
            raise BadPlanError("its operands are not those of the problem's graph")
        if header.workspace_bytes > _LARGEST_SIZE:
            raise BadPlanError(f"it claims a workspace of {header.workspace_bytes} bytes")


_NAMES = {
    "fingerprint": "key",
    "cudnn_version": "cuDNN version",
    "frontend_version": "frontend version",
    "sm": "compute capability",
    "sm_count": "number of multiprocessors",
}


def _shown(value: int | bytes) -> str:
    return value.hex()[:12] if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class Plan:
    """An executable attention graph for one kind of GPU and one version of cuDNN.

    Attributes:
        graph: the description it was built from; its operands are the bindings.
        blob: cuDNN's serialized graph with the compiled kernel.
        workspace_bytes: device memory needed during a call; owned by the caller.
        cudnn_version: as ``cudnnGetVersion()``, 91900.
        frontend_version: of nvidia-cudnn-frontend, ``"1.32.0"``.
        sm: compute capability, 90 for 9.0.
        sm_count: multiprocessors of the device it was planned for.
        fingerprint: hexadecimal key of the problem, see ``fingerprint``.
        engine: cuDNN's name for the kernel that was chosen; its first 32 bytes if it was read.
        stored: it was read from a store, not built by this process.
    """

    graph: GraphSpec
    blob: bytes
    workspace_bytes: int
    cudnn_version: int
    frontend_version: str
    sm: int
    sm_count: int
    fingerprint: str
    engine: str
    stored: bool = field(default=False, compare=False, repr=False)

    @classmethod
    def from_container(cls, container: bytes, expected: Expected) -> Plan:
        """The plan in these bytes; every field is compared with what is expected.

        Only what cuDNN adds is taken from the bytes: blob, workspace and the engine's name.

        Raises:
            BadPlanError: it is damaged, or another plan.
        """
        header = Header.read(container)
        expected.check(header, container[_HEADER.size : header.blob_offset])
        plan = cls(
            graph=expected.graph,
            blob=container[header.blob_offset :],
            workspace_bytes=header.workspace_bytes,
            cudnn_version=expected.cudnn_version,
            frontend_version=expected.frontend_version,
            sm=expected.sm,
            sm_count=expected.sm_count,
            fingerprint=expected.fingerprint,
            engine=header.engine_name,
            stored=True,
        )
        plan.__dict__["container"] = container  # what the property would make again
        return plan

    @property
    def expected(self) -> Expected:
        """What one who asks for this plan expects."""
        return Expected(
            graph=self.graph,
            fingerprint=self.fingerprint,
            cudnn_version=self.cudnn_version,
            frontend_version=self.frontend_version,
            sm=self.sm,
            sm_count=self.sm_count,
        )

    @cached_property
    def container(self) -> bytes:
        """``to_bytes()``, made once."""
        return self.to_bytes()

    @cached_property
    def inputs(self) -> tuple[Operand, ...]:
        return self._of_kind(OperandKind.INPUT)

    @cached_property
    def outputs(self) -> tuple[Operand, ...]:
        return self._of_kind(OperandKind.OUTPUT)

    @cached_property
    def scalars(self) -> tuple[Operand, ...]:
        return self._of_kind(OperandKind.HOST_SCALAR)

    def _of_kind(self, kind: OperandKind) -> tuple[Operand, ...]:
        return tuple(operand for operand in self.graph.operands if operand.kind is kind)

    def to_bytes(self) -> bytes:
        """The binary form described above."""
        bindings = _bindings(self.graph)
        header = _HEADER.pack(
            MAGIC,
            FORMAT,
            _HEADER.size + len(bindings),
            len(self.blob),
            self.workspace_bytes,
            self.cudnn_version,
            version_number(self.frontend_version),
            self.sm,
            self.sm_count,
            len(self.graph.operands),
            0,
            bytes.fromhex(self.fingerprint),
            sha256(bindings + self.blob).digest(),
            _cut(self.engine),
        )
        return header + bindings + self.blob


def _bindings(graph: GraphSpec) -> bytes:
    return b"".join(
        _BINDING.pack(
            o.uid, o.extent, KIND_CODES[o.kind], int(o.zero_fill), DTYPE_CODES[o.dtype], 0
        )
        for o in graph.operands
    )


def _cut(name: str) -> bytes:
    """At most 32 bytes of a name, whole characters."""
    return name.encode()[:32].decode(errors="ignore").encode()


def version_number(version: str) -> int:
    """``"1.32.0"`` -> 13200; a suffix such as ``rc1`` is ignored."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in release.group().split(".")] if release else []
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major * 10000 + minor * 100 + patch
