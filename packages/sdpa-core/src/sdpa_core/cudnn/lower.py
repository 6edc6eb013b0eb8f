"""From a description to a graph of cuDNN's frontend. The only place that knows its spelling."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..dtypes import DType
from ..mask import Alignment
from ..score_mod import Expression, Grad, Scalar, Tensor
from ..score_mod.expression import Leaf
from .graph import GraphSpec, Operand, OperandKind
from .score_graph import lower_expression

#: The frontend's keyword of each operand that is one, for both operations.
_KEYWORDS = {
    "query": "q",
    "key": "k",
    "value": "v",
    "output": "o",
    "stats": "stats",
    "grad_output": "dO",
    "scale": "attn_scale",
    "bias": "bias",
    "sink": "sink_token",
    "seq_len_q": "seq_len_q",
    "seq_len_kv": "seq_len_kv",
    "cu_seq_len_q": "cu_seq_len_q",
    "cu_seq_len_kv": "cu_seq_len_kv",
    "page_table_k": "paged_attention_k_table",
    "page_table_v": "paged_attention_v_table",
}

#: Results that the caller creates and hands in, with their keywords.
_HANDED_IN = {"max_logit": "score_max", "grad_bias": "dBias", "grad_sink": "dSink_token"}

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
    DType.UINT8: "UINT8",
    DType.BOOL: "BOOLEAN",
}


def data_type(cudnn: ModuleType, dtype: DType) -> Any:
    """The frontend's member for an element type."""
    return getattr(cudnn.data_type, _DTYPES[dtype])


def lower(spec: GraphSpec, graph: Any, cudnn: ModuleType) -> None:
    """Add the described operation to an empty ``cudnn.pygraph``.

    Every uid is set, so that the executor's map does not depend on the order of creation; every
    result's shape and strides too, because the frontend would infer row-major ones.
    """
    tensors = _tensors(spec, graph, cudnn)
    arguments = {
        keyword: tensors[role]
        for role, keyword in {**_KEYWORDS, **_HANDED_IN}.items()
        if role in tensors and role not in _RESULTS[spec.operation]
    }
    options = {name: _option(name, value, cudnn) for name, value in spec.options}
    probability = options.pop("dropout_p", None)
    if probability is not None:
        seed, offset = tensors["dropout_seed"], tensors["dropout_offset"]
        arguments["dropout"] = (probability, seed, offset)
    if spec.score_mod is not None:
        for role in spec.score_mod_tensors:
            arguments.pop(_KEYWORDS.get(role, ""), None)
        arguments |= _functions(spec, cudnn, tensors)
    results = getattr(graph, spec.operation)(**arguments, **options)
    for role, result in zip(_RESULTS[spec.operation], results, strict=False):
        if spec.has(role):
            _mark_output(result, spec.operand(role), tensors, cudnn)
    for role in _HANDED_IN:
        if spec.has(role):
            tensors[role].set_output(True)


def _tensors(spec: GraphSpec, graph: Any, cudnn: ModuleType) -> dict[str, Any]:
    """A tensor of the graph for each operand that exists before the operation, by role.

    Offsets come first: they are properties of the tensors that they belong to.
    """
    made: dict[str, Any] = {}
    by_uid: dict[int, Any] = {}
    for operand in sorted(spec.operands, key=lambda operand: operand.ragged is not None):
        if operand.role in _RESULTS[spec.operation] and operand.kind is OperandKind.OUTPUT:
            continue
        ragged = None if operand.ragged is None else by_uid[operand.ragged]
        made[operand.role] = by_uid[operand.uid] = _tensor(operand, graph, cudnn, ragged)
    made.update({f"uid {uid}": tensor for uid, tensor in by_uid.items()})
    return made


def _tensor(operand: Operand, graph: Any, cudnn: ModuleType, ragged: Any) -> Any:
    packed = {} if ragged is None else {"ragged_offset": ragged}
    if operand.ragged_unit != 1:
        packed["ragged_offset_multiplier"] = operand.ragged_unit
    return graph.tensor(
        name=operand.role,
        uid=int(operand.uid),
        dim=list(operand.shape),
        stride=list(operand.strides),
        data_type=data_type(cudnn, operand.dtype),
        is_pass_by_value=operand.kind is OperandKind.HOST_SCALAR,
        **packed,
    )


def _mark_output(tensor: Any, operand: Operand, tensors: dict[str, Any], cudnn: ModuleType) -> None:
    tensor.set_uid(int(operand.uid))
    tensor.set_output(True)
    tensor.set_dim(list(operand.shape))
    tensor.set_stride(list(operand.strides))
    tensor.set_data_type(data_type(cudnn, operand.dtype))
    if operand.ragged is not None:
        tensor.set_ragged_offset(tensors[f"uid {operand.ragged}"])
        if operand.ragged_unit != 1:
            tensor.set_ragged_offset_multiplier(operand.ragged_unit)


def _option(name: str, value: object, cudnn: ModuleType) -> object:
    if isinstance(value, Alignment):
        return getattr(cudnn.diagonal_alignment, value.name)
    if name == "implementation":
        return getattr(cudnn.attention_implementation, str(value).upper())
    return value


def _functions(spec: GraphSpec, cudnn: ModuleType, tensors: dict[str, Any]) -> dict[str, Any]:
    """The callbacks that put the function of the logits into the graph.

    The backward operation calls ``score_mod`` first, to compute the logits again, and does not
    give them to ``score_mod_bprop``, which remembers them.
    """
    function, gradient = spec.score_mod, spec.score_mod_gradient
    assert function is not None
    leaves = _leaves((function, gradient), spec.score_mod_tensors, tensors)
    scores: list[Any] = []

    def forward(graph: Any, score: Any) -> Any:
        scores.append(score)
        return lower_expression(function, graph, cudnn, score, leaves)

    if gradient is None:
        return {"score_mod": forward}

    def backward(graph: Any, grad: Any) -> Any:
        return lower_expression(gradient, graph, cudnn, scores[-1], leaves | {Grad(): grad})

    return {"score_mod": forward, "score_mod_bprop": backward}


def _leaves(
    expressions: tuple[Expression | None, ...], roles: tuple[str, ...], tensors: dict[str, Any]
) -> dict[Leaf, Any]:
    """cuDNN's tensor of each auxiliary tensor and scalar that the expressions read."""
    tensors_of: dict[Leaf, Any] = {}
    for leaf in (leaf for e in expressions if e is not None for leaf in e.leaves()):
        if isinstance(leaf, Tensor):
            tensors_of[leaf] = tensors[roles[leaf.position]]
        elif isinstance(leaf, Scalar):
            tensors_of[leaf] = tensors[f"score_mod_scalar_{leaf.position}"]
    return tensors_of
