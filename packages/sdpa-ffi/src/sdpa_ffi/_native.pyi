from typing import Any, TypedDict, final

from typing_extensions import Buffer, CapsuleType

EXECUTOR_ABI: int

class BuildInfo(TypedDict):
    executor_abi: int
    plan_format: int
    cudnn_frontend: int
    xla_ffi: tuple[int, int]
    dlpack: tuple[int, int]

class Counters(TypedDict):
    loads: int
    load_failures: int
    executes: int
    execute_failures: int
    zero_fills: int
    handles_created: int
    parse_seconds: float
    handle_seconds: float
    deserialize_seconds: float
    check_seconds: float

class XlaTarget(TypedDict):
    instantiate: CapsuleType
    initialize: CapsuleType
    execute: CapsuleType

class XlaType(TypedDict):
    type_id: CapsuleType
    type_info: CapsuleType

@final
class LoadedPlan:
    @property
    def device(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def uids(self) -> tuple[int, ...]: ...
    @property
    def num_operands(self) -> int: ...
    def execute(
        self, operands: tuple[Any, ...], scalars: tuple[float, ...], workspace: Any, stream: int, /
    ) -> None: ...

def load(container: Buffer, device: int, /) -> LoadedPlan: ...
def verify(container: Buffer, device_properties: str, /) -> tuple[int, tuple[int, ...]]: ...
def describe(
    container: Buffer, /
) -> tuple[
    tuple[int, int, int, int, int, int, int, bytes, bytes, str],
    tuple[tuple[int, int, int, bool, str], ...],
]: ...
def check_operands(
    container: Buffer,
    device: int,
    operands: tuple[Any, ...],
    scalars: tuple[float, ...],
    workspace: Any,
    /,
) -> None: ...
def set_cudnn_path(path: str, /) -> None: ...
def set_roles(roles: dict[int, str], /) -> None: ...
def counters() -> Counters: ...
def xla_target() -> XlaTarget: ...
def xla_type() -> XlaType: ...
def build_info() -> BuildInfo: ...
