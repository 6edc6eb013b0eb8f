"""Talking to cuDNN's frontend: finding it, and turning a description into a serialized plan."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from ..device import DeviceSpec, format_version
from ..dtypes import DType
from ..errors import SdpaEnvironmentError
from . import deviceless
from .graph import GraphSpec
from .lower import data_type, lower

#: Engines with higher numbers are the frontend's own Python kernels, whose plans the native
#: executor cannot read; the blob of such a plan starts with this.
_FIRST_PYTHON_ENGINE = 10_000
_PYTHON_PLAN_MAGIC = b"CUDNN_FE_PYPLAN"
#: Their names, to leave them out before they are ranked.
_PYTHON_ENGINES = ["sdpa_fwd_", "sdpa_bwd_"]

_INSTALL = "pip install 'nvidia-cudnn-frontend>=1.28' nvidia-cudnn-cu13"


class GraphRefusedError(Exception):
    """cuDNN does not support the graph; the text is its own."""


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
    except ModuleNotFoundError as error:
        if error.name != "cudnn":
            raise
        raise SdpaEnvironmentError(
            f"nvidia-cudnn-frontend is not installed. Install it with: {_INSTALL}"
        ) from None
    try:
        cudnn.backend_version()
    except Exception as error:
        raise SdpaEnvironmentError(
            f"nvidia-cudnn-frontend {cudnn.__version__} finds no cuDNN library ({error}). "
            f"Install it with: {_INSTALL}"
        ) from error
    return cudnn  # type: ignore[no-any-return]


def frontend_version() -> str:
    """Version of nvidia-cudnn-frontend, ``1.32.0``."""
    return str(frontend().__version__)


def cudnn_version() -> int:
    """Version of the cuDNN library in this process, 91900."""
    return int(frontend().backend_version())


def check_version(device: DeviceSpec) -> None:
    """Raise unless the installed cuDNN is the one the device is described with."""
    installed = cudnn_version()
    if device.cudnn_version is not None and device.cudnn_version != installed:
        wanted = format_version(device.cudnn_version)
        raise SdpaEnvironmentError(
            f"a plan for cuDNN {wanted} was asked for, cuDNN {format_version(installed)} is "
            f"loaded. Install it with: pip install 'nvidia-cudnn-cu13=={wanted}.*'"
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
    with _refusals(cudnn):
        lower(spec, graph, cudnn)
        graph.deselect_engines(_PYTHON_ENGINES)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        if spec.workspace_limit is not None:
            graph.deselect_workspace_greater_than(spec.workspace_limit)
        graph.check_support()
        graph.build_plans()
    return _serialize(graph)


@contextlib.contextmanager
def _refusals(cudnn: ModuleType) -> Iterator[None]:
    """Every stage may refuse, each frontend version at another one; keep cuDNN's words."""
    try:
        yield
    except cudnn.cudnnGraphNotSupportedError as error:
        raise GraphRefusedError(_one_line(error)) from error
    except (RuntimeError, ValueError) as error:
        deviceless.explain_failure(str(error))
        raise GraphRefusedError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def _serialize(graph: Any) -> Built:
    blob = bytes(graph.serialize())
    if blob.startswith(_PYTHON_PLAN_MAGIC):
        raise GraphRefusedError("cuDNN chose one of the frontend's Python engines")
    return Built(blob, int(graph.get_workspace_size()), _engine(graph))


def _engine(graph: Any) -> str:
    """The name of the chosen plan, ``eng9_k24=7``: for provenance only."""
    return str(graph.get_plan_name_at_index(0))
