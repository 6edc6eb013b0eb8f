"""From an expression to cuDNN's graph, inside a callback of ``sdpa`` or ``sdpa_backward``.

Constants are ``tensor_scalar`` with ``COMPILE_TIME_CONST``: frontends 1.28 and 1.32 write them into
the plan itself, so nothing has to be given at launch (seen in the serialized graph:
``pass_by_values`` is empty, ``variant_pack_uids`` has no uid of theirs).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ..score_mod.expression import (
    Apply,
    Axis,
    Constant,
    Expression,
    Grad,
    Index,
    Leaf,
    Node,
    Score,
    Type,
)
from ..score_mod.ops import OPS
from .score_form import cudnn_form

_DATA_TYPES = {Type.FLOAT: "FLOAT", Type.INT: "INT32", Type.BOOL: "BOOLEAN"}


def lower_expression(
    expression: Expression,
    graph: Any,
    cudnn: ModuleType,
    score: Any,
    leaves: Mapping[Leaf, Any],
) -> Any:
    """Add an expression to the graph that a callback was given; the tensor of its result.

    Args:
        graph: as the callback got it.
        score: cuDNN's tensor of the scaled logits. ``score_mod_bprop`` is not given it: it uses
            the one that ``score_mod`` was given, in the same graph.
        leaves: cuDNN's tensors of the expression's auxiliary tensors, scalars, and of ``Grad()``.
    """
    values: list[Any] = []
    nodes = cudnn_form(expression, backward=Grad() in leaves).nodes
    for node in nodes:
        match node:
            case Apply():
                values.append(_apply(node, nodes, values, graph, cudnn))
            case Score():
                values.append(score)
            case Index():
                values.append(_index(node, graph, cudnn, score))
            case Constant():
                values.append(_constant(node, graph, cudnn))
            case _:
                values.append(leaves[node])
    return values[-1] if isinstance(node, Apply) else graph.identity(input=values[-1])


def _apply(
    node: Apply, nodes: tuple[Node, ...], values: list[Any], graph: Any, cudnn: ModuleType
) -> Any:
    op = OPS[node.op]
    operands = {keyword: values[i] for keyword, i in zip(op.operands, node.operands, strict=True)}
    types = {nodes[i].type for i in node.operands}
    computed = _computed_in(node.type, types)
    result = getattr(graph, op.method)(
        **operands, compute_data_type=getattr(cudnn.data_type, computed)
    )
    result.set_data_type(_data_type(node.type, cudnn))
    return result


def _computed_in(result: Type, operands: set[Type]) -> str:
    """cuDNN's type of the computation.

    Ints must be told: in float32, the graph's type, they are tiny numbers that all compare equal
    (H200, cuDNN 9.19: masks hid nothing, or everything). Floats and bools must not: cuDNN takes
    BOOLEAN for a kind of int there.
    """
    if operands != {Type.INT} or result is Type.FLOAT:
        return "FLOAT"
    return "BOOLEAN" if result is Type.BOOL else "INT32"


def _index(node: Index, graph: Any, cudnn: ModuleType, score: Any) -> Any:
    data_type = _data_type(Type.INT, cudnn)
    axis = list(Axis).index(node.axis)
    index = graph.gen_index(input=score, axis=axis, compute_data_type=data_type)
    index.set_data_type(data_type)
    return index


def _constant(node: Constant, graph: Any, cudnn: ModuleType) -> Any:
    """A number in the plan.

    Frontend 1.32 makes a DOUBLE of a float that float32 does not hold exactly, and a FLOAT of a
    bool: floats are rounded here, and bools do not occur (``Builder`` folds them).
    """
    assert node.type is not Type.BOOL
    value = node.value
    if node.type is Type.FLOAT:
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    kinds, version = cudnn.scalar_type, cudnn.backend_version()
    kind = kinds.COMPILE_TIME_CONST if version >= _CONSTANTS_SINCE else kinds.RUNTIME_PARAM
    return graph.tensor_scalar(value, kind)


#: The first cuDNN whose plans hold constants. The frontend keeps those of older ones beside the
#: plan, in its serialized graph, and hands them over at each launch.
_CONSTANTS_SINCE = 92200


def _data_type(type_: Type, cudnn: ModuleType) -> Any:
    return getattr(cudnn.data_type, _DATA_TYPES[type_])
