"""Talking to cuDNN's frontend: finding it, and turning a description into a serialized plan."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

from ..device import DeviceSpec, format_version
from ..dtypes import DType
from ..errors import SdpaEnvironmentError
from ..events import stages
from . import deviceless
from .graph import GraphSpec
from .lower import data_type, lower

#: Engines from here on are the frontend's own kernels, whose plans the native executor cannot read.
_FIRST_PYTHON_ENGINE = 10_000
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
    except (ImportError, OSError) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cudnn"
        state = "is not installed" if missing else f"cannot be imported ({error})"
        raise SdpaEnvironmentError(
            f"nvidia-cudnn-frontend {state}. Install it with: {_INSTALL}"
        ) from error
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
        with stages("lower"):
            lower(spec, graph, cudnn)
            graph.deselect_engines(_PYTHON_ENGINES)
        with stages("plan"):
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A])
            graph.check_support()
        with stages("compile"):
            index = _build_first(graph, cudnn, spec.workspace_limit)
    with stages("serialize"):
        return Built(
            blob=bytes(graph.serialize()),
            workspace_bytes=int(graph.get_workspace_size()),
            engine=str(graph.get_plan_name_at_index(index)),
        )


def _build_first(graph: Any, cudnn: ModuleType, workspace_limit: int | None) -> int:
    """Compile plans in cuDNN's order until one builds and keeps to the limit; its index."""
    refusal = "cuDNN offers no plan"
    for index in range(graph.get_execution_plan_count()):
        if graph.plans[index].engine_id >= _FIRST_PYTHON_ENGINE:
            continue
        try:
            graph.build_plan_at_index(index)
        except cudnn.cudnnGraphNotSupportedError as error:
            refusal = _one_line(error)
            continue
        if workspace_limit is None or graph.get_workspace_size() <= workspace_limit:
            return index
        refusal = f"every plan needs more than {workspace_limit} bytes of workspace"
    raise GraphRefusedError(refusal)


@contextlib.contextmanager
def _refusals(cudnn: ModuleType) -> Iterator[None]:
    """Tell refusals, which stay, from failures, which may be gone at the next try.

    Every stage may refuse, each frontend version at another one. Other errors of cuDNN or CUDA
    (no memory, a capture under way) say nothing about the graph.
    """
    try:
        yield
    except cudnn.cudnnGraphNotSupportedError as error:
        deviceless.explain_failure(str(error))
        raise GraphRefusedError(_one_line(error)) from error
    except ValueError as error:
        raise GraphRefusedError(_one_line(error)) from error
    except RuntimeError as error:
        deviceless.explain_failure(str(error))
        if "NOT_SUPPORTED" in str(error):
            raise GraphRefusedError(_one_line(error)) from error
        raise SdpaEnvironmentError(
            f"cuDNN failed while planning: {_one_line(error)}. Where this is the first call inside "
            f"a stream capture, call once before it; else see: python -m cudnn.collect_env"
        ) from error


#: What cuDNN's messages give as reasons, most specific first, and how those look that only name a
#: function of its own.
_REASON = re.compile(r"Reason: (.+?)(?= at: | Warning: | \{|;|$)")
_OWN_FUNCTION = re.compile(r"[\w>.:-]+\(.*\)|.*\bstatus\b.*")
_PREAMBLE = re.compile(r" \(the backend declined.*")


def _one_line(error: Exception) -> str:
    """The message without the engines' settings, which fill pages: its verdict and its reasons."""
    text = " ".join(str(error).split())
    given = dict.fromkeys(reason.strip() for reason in _REASON.findall(text))
    reasons = [reason for reason in given if not _OWN_FUNCTION.fullmatch(reason)]
    if not reasons:
        return text[:500]
    return f"{_PREAMBLE.sub('', text)[:200]}: {'; '.join(reasons)[:500]}"
