"""cuDNN through its frontend's Python API, as its documentation does it: one graph, one handle.

The scale is a constant of the graph, all buffers are allocated beforehand.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any

from .base import Call, missing, no_cuda_in_torch

_GRADIENTS = ("grad_query", "grad_key", "grad_value")


class Pygraph:
    name = "pygraph"

    def unavailable(self) -> str | None:
        return missing("torch", "cudnn") or no_cuda_in_torch()

    def scope(self) -> AbstractContextManager[object]:
        return nullcontext()

    def forward(self, inputs: Any) -> Call:
        run, tensors = _built_forward(inputs, with_stats=False)
        results = (tensors["output"],)
        return lambda: run() or results

    def backward(self, inputs: Any) -> Call:
        import cudnn

        run, tensors = _built_forward(inputs, with_stats=True)
        run()
        graph, nodes = backward_graph(cudnn, inputs, tensors, handle=_handle())
        for role, like in zip(_GRADIENTS, inputs.operands, strict=True):
            tensors[role] = _empty_like(like)
        results = tuple(tensors[role] for role in _GRADIENTS)
        run = _launch(graph, nodes, tensors)
        return lambda: run() or results


@cache
def _handle() -> Any:
    import cudnn

    return cudnn.create_handle()


def _built_forward(inputs: Any, *, with_stats: bool) -> tuple[Any, dict[str, Any]]:
    import cudnn
    import torch

    graph, nodes = forward_graph(cudnn, inputs, with_stats=with_stats, handle=_handle())
    tensors = dict(inputs.by_role(), output=_empty_like(inputs.query))
    if with_stats:
        row = inputs.row
        shape = (row.batch, row.heads, row.tokens, 1)
        tensors["stats"] = torch.empty(shape, dtype=torch.float32, device=inputs.query.device)
    return _launch(graph, nodes, tensors), tensors


def _empty_like(tensor: Any) -> Any:
    import torch

    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


def _launch(graph: Any, nodes: dict[str, Any], tensors: dict[str, Any]) -> Any:
    import cudnn
    import torch

    handle = _handle()
    operands = {node: tensors[role] for role, node in nodes.items()}
    size = max(16, graph.get_workspace_size())
    workspace = torch.empty(size, dtype=torch.uint8, device=tensors["query"].device)

    def run() -> None:
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(operands, workspace, handle=handle)

    return run


def _graph(cudnn: ModuleType, where: dict[str, Any]) -> Any:
    return cudnn.pygraph(
        io_data_type=cudnn.data_type.BFLOAT16,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        **where,
    )


def _node(cudnn: ModuleType, graph: Any, role: str, tensor: Any) -> Any:
    dtype = cudnn.data_type.FLOAT if role == "stats" else cudnn.data_type.BFLOAT16
    return graph.tensor(
        name=role, dim=list(tensor.shape), stride=list(tensor.stride()), data_type=dtype
    )


def _output(node: Any, like: Any) -> Any:
    return node.set_output(True).set_dim(list(like.shape)).set_stride(list(like.stride()))


def forward_graph(
    cudnn: ModuleType, inputs: Any, *, with_stats: bool, **where: Any
) -> tuple[Any, dict[str, Any]]:
    """A built graph and its tensors by role.

    Args:
        cudnn: the frontend.
        inputs: whose shapes and strides count.
        with_stats: keep what the backward pass needs.
        where: a handle, or a description of a device that is not here.
    """
    graph = _graph(cudnn, where)
    nodes = {
        role: _node(cudnn, graph, role, tensor)
        for role, tensor in zip(("query", "key", "value"), inputs.operands, strict=True)
    }
    output, stats = graph.sdpa(
        q=nodes["query"],
        k=nodes["key"],
        v=nodes["value"],
        attn_scale=inputs.row.scale,
        use_causal_mask=inputs.row.causal,
        generate_stats=with_stats,
    )
    nodes["output"] = _output(output, inputs.query)
    if with_stats:
        nodes["stats"] = stats.set_output(True).set_data_type(cudnn.data_type.FLOAT)
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    return graph, nodes


def backward_graph(
    cudnn: ModuleType, inputs: Any, tensors: dict[str, Any], **where: Any
) -> tuple[Any, dict[str, Any]]:
    """As ``forward_graph``; ``tensors`` holds the output and the statistics."""
    graph = _graph(cudnn, where)
    roles = ("query", "key", "value", "output", "stats")
    given = {role: tensors[role] for role in roles} | {"grad_output": inputs.grad_output}
    nodes = {role: _node(cudnn, graph, role, tensor) for role, tensor in given.items()}
    gradients = graph.sdpa_backward(
        q=nodes["query"],
        k=nodes["key"],
        v=nodes["value"],
        o=nodes["output"],
        dO=nodes["grad_output"],
        stats=nodes["stats"],
        attn_scale=inputs.row.scale,
        use_causal_mask=inputs.row.causal,
    )
    for role, node, like in zip(_GRADIENTS, gradients, inputs.operands, strict=True):
        nodes[role] = _output(node, like)
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    return graph, nodes
