"""From a description to a graph of cuDNN's frontend. The only place that knows its spelling."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..dtypes import DType
from ..mask import Alignment
from .graph import GraphSpec, Operand, OperandKind

#: The frontend's keyword of each input, by operation.
_KEYWORDS = {
    "sdpa": {
        "query": "q",
        "key": "k",
        "value": "v",
        "scale": "attn_scale",
        "seq_len_q": "seq_len_q",
        "seq_len_kv": "seq_len_kv",
    },
    "sdpa_backward": {
        "query": "q",
        "key": "k",
        "value": "v",
        "output": "o",
        "stats": "stats",
        "grad_output": "dO",
        "scale": "attn_scale",
        "seq_len_q": "seq_len_q",
        "seq_len_kv": "seq_len_kv",
    },
}

#: What each operation returns, in order.
_RESULTS = {
    "sdpa": ("output", "stats"),
    "sdpa_backward": ("grad_query", "grad_key", "grad_value"),
}

_DTYPES = {
    DType.FLOAT16: "HALF",
    DType.BFLOAT16: "BFLOAT16",
    DType.FLOAT32: "FLOAT",
    DType.INT32: "INT32",
    DType.INT64: "INT64",
}


def data_type(cudnn: ModuleType, dtype: DType) -> Any:
    """The frontend's member for an element type."""
    return getattr(cudnn.data_type, _DTYPES[dtype])


def lower(spec: GraphSpec, graph: Any, cudnn: ModuleType) -> None:
    """Add the described operation to an empty ``cudnn.pygraph``.

    Every uid is set, so that the executor's map does not depend on the order of creation; every
    result's shape and strides too, because the frontend would infer row-major ones.
    """
    arguments = {
        _KEYWORDS[spec.operation][operand.role]: _tensor(operand, graph, cudnn)
        for operand in spec.operands
        if operand.kind is not OperandKind.OUTPUT
    }
    options = {name: _option(value, cudnn) for name, value in spec.options}
    results = getattr(graph, spec.operation)(**arguments, **options)
    for role, result in zip(_RESULTS[spec.operation], results, strict=True):
        if spec.has(role):
            _mark_output(result, spec.operand(role), cudnn)


def _tensor(operand: Operand, graph: Any, cudnn: ModuleType) -> Any:
    return graph.tensor(
        name=operand.role,
        uid=int(operand.uid),
        dim=list(operand.shape),
        stride=list(operand.strides),
        data_type=data_type(cudnn, operand.dtype),
        is_pass_by_value=operand.kind is OperandKind.HOST_SCALAR,
    )


def _mark_output(tensor: Any, operand: Operand, cudnn: ModuleType) -> None:
    tensor.set_uid(int(operand.uid))
    tensor.set_output(True)
    tensor.set_dim(list(operand.shape))
    tensor.set_stride(list(operand.strides))
    tensor.set_data_type(data_type(cudnn, operand.dtype))


def _option(value: object, cudnn: ModuleType) -> object:
    if isinstance(value, Alignment):
        return getattr(cudnn.diagonal_alignment, value.name)
    return value
