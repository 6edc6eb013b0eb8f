"""Plan containers for the tests: a packer written from the format's table, and real cuDNN plans."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

HEADER = struct.Struct("<8sIIQQIIIIII32s32s32s")
BINDING = struct.Struct("<qQIIII")

INPUT, OUTPUT, SCALAR = 0, 1, 2
BFLOAT16, FLOAT32 = 2, 3


@dataclass
class Container:
    """The fields of a container; what is left None is computed, what is set is written as it is."""

    bindings: list[tuple[int, ...]] = field(
        default_factory=lambda: [
            (1, 2048, INPUT, 0, BFLOAT16, 0),
            (4, 1024, OUTPUT, 0, BFLOAT16, 0),
            (7, 0, SCALAR, 0, FLOAT32, 0),
            (9, 64, OUTPUT, 1, FLOAT32, 0),
        ]
    )
    blob: bytes = b"not a graph"
    magic: bytes = b"SDPAPLAN"
    format: int = 1
    header_bytes: int | None = None
    blob_bytes: int | None = None
    workspace_bytes: int = 256
    cudnn_version: int = 91900
    frontend_version: int = 13200
    sm: int = 90
    sm_count: int = 132
    binding_count: int | None = None
    reserved: int = 0
    fingerprint: bytes = bytes(range(32))
    sha256: bytes | None = None
    engine: bytes = b"eng9_k24=7"

    def to_bytes(self) -> bytes:
        table = b"".join(BINDING.pack(*binding) for binding in self.bindings)

        def given(value: int | bytes | None, default: int | bytes) -> int | bytes:
            return default if value is None else value

        header = HEADER.pack(
            self.magic,
            self.format,
            given(self.header_bytes, HEADER.size + len(table)),
            given(self.blob_bytes, len(self.blob)),
            self.workspace_bytes,
            self.cudnn_version,
            self.frontend_version,
            self.sm,
            self.sm_count,
            given(self.binding_count, len(self.bindings)),
            self.reserved,
            self.fingerprint,
            given(self.sha256, hashlib.sha256(table + self.blob).digest()),
            self.engine,
        )
        return header + table + self.blob


@pytest.fixture(name="Container")
def container_class() -> type[Container]:
    return Container


DEVICES = {80: "a100", 90: "h200", 100: "b200", 120: "rtx5090"}


@pytest.fixture(scope="session")
def device_properties() -> Callable[[int], str]:
    """cuDNN's JSON description of a device with the given compute capability."""
    from sdpa_core.device import DeviceSpec

    return lambda sm: DeviceSpec.named(DEVICES[sm]).properties


@pytest.fixture(scope="session")
def planned(device_properties: Callable[[int], str]) -> Callable[[int], Container]:
    """Plans one forward attention for an architecture, with the scale bound at execute."""
    cudnn = pytest.importorskip("cudnn")
    from sdpa_core.cudnn import deviceless

    deviceless.prepare()

    def plan(sm: int) -> Container:
        properties = cudnn.create_device_properties(device_properties(sm))
        graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.BFLOAT16,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            sm_version=sm,
            device_property=properties,
        )
        b, h, s, d = 2, 4, 256, 64
        dim, stride = [b, h, s, d], [h * s * d, s * d, d, 1]
        q, k, v = (graph.tensor(dim=dim, stride=stride, uid=uid) for uid in (1, 2, 3))
        scale = graph.tensor(
            dim=[1, 1, 1, 1],
            stride=[1, 1, 1, 1],
            data_type=cudnn.data_type.FLOAT,
            is_pass_by_value=True,
            uid=10,
        )
        o, stats = graph.sdpa(q=q, k=k, v=v, attn_scale=scale, generate_stats=True)
        o.set_uid(4).set_output(True).set_dim(dim).set_stride(stride)
        stats.set_uid(5).set_output(True).set_data_type(cudnn.data_type.FLOAT)
        graph.deselect_engines(["sdpa_fwd_", "sdpa_bwd_"])  # the Python engines
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        extent = 2 * b * h * s * d
        return Container(
            bindings=[
                *((uid, extent, INPUT, 0, BFLOAT16, 0) for uid in (1, 2, 3)),
                (4, extent, OUTPUT, 0, BFLOAT16, 0),
                (5, 4 * b * h * s, OUTPUT, 0, FLOAT32, 0),
                (10, 0, SCALAR, 0, FLOAT32, 0),
            ],
            blob=bytes(graph.serialize()),
            workspace_bytes=graph.get_workspace_size(),
            cudnn_version=cudnn.backend_version(),
            sm=sm,
        )

    return plan
