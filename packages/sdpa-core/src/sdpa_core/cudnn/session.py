"""Talking to cuDNN's frontend: finding it, and turning a description into a serialized plan."""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from ..device import DeviceSpec, format_version
from ..dtypes import DType
from ..errors import SdpaEnvironmentError
from ..events import stages
from . import deviceless, packages
from .graph import GraphSpec
from .lower import data_type, lower
from .packages import pip_install
from .refusal import GraphRefusedError, one_line, refusals

#: Engines from here on are the frontend's own kernels, whose plans the native executor cannot read.
_FIRST_PYTHON_ENGINE = 10_000
#: Their names, to leave them out before they are ranked.
_PYTHON_ENGINES = ["sdpa_fwd_", "sdpa_bwd_"]

_PACKAGES = "'nvidia-cudnn-frontend>=1.28' {cudnn}"


@dataclass(frozen=True, slots=True)
class Built:
    """What cuDNN made of a graph."""

    blob: bytes
    workspace_bytes: int
    engine: str


@cache
def frontend() -> ModuleType:
    """The ``cudnn`` module.

    Raises:
        SdpaEnvironmentError: it is not installed, or finds no cuDNN library.
    """
    try:
        import cudnn
    except (ImportError, OSError) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cudnn"
        state = "is not installed" if missing else f"cannot be imported ({error})"
        raise SdpaEnvironmentError(
            f"nvidia-cudnn-frontend {state}. Install it with: {pip_install(_PACKAGES)}"
        ) from error
    try:
        cudnn.backend_version()
    except Exception as error:
        raise SdpaEnvironmentError(
            f"nvidia-cudnn-frontend {cudnn.__version__} finds no cuDNN library ({error}). "
            f"Install it with: {pip_install(_PACKAGES)}"
        ) from error
    return cudnn  # type: ignore[no-any-return]


def frontend_version() -> str:
    """Version of nvidia-cudnn-frontend, ``1.32.0``; loaded only if pip does not know it."""
    known = None if "cudnn" in sys.modules else packages.frontend_version()
    return known or str(frontend().__version__)


def cudnn_version() -> int:
    """Version of the cuDNN library in this process, 91900."""
    return int(frontend().backend_version())


def check_version(device: DeviceSpec) -> None:
    """Raise unless the installed cuDNN is the one the device is described with."""
    installed = cudnn_version()
    if device.cudnn_version is not None and device.cudnn_version != installed:
        wanted = format_version(device.cudnn_version)
        command = pip_install(f"'{{cudnn}}=={wanted}.*'")
        raise SdpaEnvironmentError(
            f"a plan for cuDNN {wanted} was asked for, cuDNN {format_version(installed)} is "
            f"loaded. Install it with: {command}"
        )


_lock = threading.Lock()
_properties: dict[str | int, Any] = {}


def _device_properties(device: DeviceSpec) -> Any:
    """cuDNN's description of a device; a real one is asked, an imagined one read from its JSON."""
    cudnn = frontend()
    source = device.properties if device.ordinal is None else device.ordinal
    if source is None:
        raise SdpaEnvironmentError(
            f"{device} is neither a device of this machine nor described by properties; "
            f"use DeviceSpec.named(...)"
        )
    if isinstance(source, str):
        deviceless.prepare()
    with _lock:
        if source not in _properties:
            _properties[source] = cudnn.create_device_properties(source)
        return _properties[source]


def build(spec: GraphSpec, device: DeviceSpec) -> Built:
    """Plan and compile a described graph for a device, which need not be present.

    Raises:
        GraphRefusedError: cuDNN does not support it.
        SdpaEnvironmentError: something is missing on this machine.
    """
    check_version(device)
    cudnn = frontend()
    graph = cudnn.pygraph(
        name=spec.operation,
        io_data_type=data_type(cudnn, spec.io_dtype),
        intermediate_data_type=data_type(cudnn, DType.FLOAT32),
        compute_data_type=data_type(cudnn, DType.FLOAT32),
        sm_version=device.sm,  # not derived from the properties by the frontend
        device_property=_device_properties(device),
    )
    with refusals(cudnn):
        with stages("lower"):
            lower(spec, graph, cudnn)
            graph.deselect_engines(_PYTHON_ENGINES)
        with stages("plan"):
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A])
            graph.check_support()
        with stages("compile"):
            index = _build_first(graph, cudnn, spec.whole_keys)
    with stages("serialize"):
        return Built(
            blob=bytes(graph.serialize()),
            workspace_bytes=int(graph.get_workspace_size()),
            engine=str(graph.get_plan_name_at_index(index)),
        )


def _build_first(graph: Any, cudnn: ModuleType, whole_keys: bool) -> int:
    """Compile plans in cuDNN's order until one builds that may be used; its index."""
    refusal = "cuDNN offers no plan"
    for index in range(graph.get_execution_plan_count()):
        if graph.plans[index].engine_id >= _FIRST_PYTHON_ENGINE:
            continue
        try:
            graph.build_plan_at_index(index)
        except cudnn.cudnnGraphNotSupportedError as error:
            refusal = one_line(error)
            continue
        if not whole_keys or not _splits_keys(graph, index):
            return index
        refusal = "every plan splits the keys of a query"
    raise GraphRefusedError(refusal)


def _splits_keys(graph: Any, index: int) -> bool:
    """Whether a plan merges what it computes from parts of the keys.

    By the kernel's configuration, and for those that are not known by the memory that merging
    takes: with few keys it takes none, and the log-sum-exp differs all the same.
    """
    name = str(graph.get_plan_name_at_index(index))
    known = any(pattern.search(name) for pattern in _SPLIT)
    return known or graph.get_workspace_size() > _COUNTERS


#: Names of plans that split keys. The first was seen to on an H200 (cuDNN 9.19); the others need
#: memory for one query and 4096 keys, which their siblings do not (built without a GPU, 9.28).
_SPLIT = (re.compile("_k24=35$"), re.compile("^eng8_k24=2_.*k38=1_"), re.compile("^eng10_"))

#: Some plans use a few hundred bytes for counters.
_COUNTERS = 1024
