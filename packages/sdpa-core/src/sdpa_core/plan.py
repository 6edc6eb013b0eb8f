"""A plan: cuDNN's serialized graph, and what must be handed to it.

``Plan.to_bytes`` is the one binary form: what the native executor parses and XLA programs carry.
All integers are little endian.

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
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from .cudnn.graph import GraphSpec, Operand, OperandKind
from .dtypes import DType

MAGIC = b"SDPAPLAN"
FORMAT = 1

_HEADER = struct.Struct("<8sIIQQIIIIII32s32s32s")
_BINDING = struct.Struct("<qQIIII")

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
        engine: cuDNN's name for the kernel that was chosen.
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
        bindings = b"".join(
            _BINDING.pack(
                o.uid, o.extent, KIND_CODES[o.kind], int(o.zero_fill), DTYPE_CODES[o.dtype], 0
            )
            for o in self.graph.operands
        )
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
            self.engine.encode()[:32],
        )
        return header + bindings + self.blob


def version_number(version: str) -> int:
    """``"1.32.0"`` -> 13200; a suffix such as ``rc1`` is ignored."""
    release = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in release.group().split(".")] if release else []
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major * 10000 + minor * 100 + patch
