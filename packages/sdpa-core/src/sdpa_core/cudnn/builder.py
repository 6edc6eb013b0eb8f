"""The graph of a problem: ``sdpa`` or ``sdpa_backward`` with float32 accumulation."""

from __future__ import annotations

from ..device import DeviceSpec
from ..problem import AttentionProblem, Direction
from . import f16, flex, parts
from .dimensions import declared as with_declared_dimensions
from .graph import GraphSpec
from .known_bad import wants_whole_keys
from .options import direction_options


def describe(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> GraphSpec:
    """The graph of one direction of a problem, as plain values.

    Forward: the problem's inputs and the scale, to output and, if asked for, statistics and the
    largest logits. Backward: those, the output, the statistics and the gradient of the output, to
    the gradients, stored like the tensors they belong to.
    """
    forward = direction is Direction.FORWARD
    declared = with_declared_dimensions(problem, device, direction)
    options = direction_options(declared, direction, max_total_kv=device.sm // 10 != 12)
    tensors = parts.tensors(declared, device, direction)
    if declared.is_flex:
        function = flex.function(declared, problem.tokens_q, direction)
        masking, chosen = list(function.operands), dict[str, object]()
    else:
        function = flex.NO_FUNCTION
        masking, chosen = f16.masks(declared, problem.tokens_q, device, direction)
    if declared.dropout_p > 0:
        options["dropout_p"] = declared.dropout_p
    if declared.paged is not None:
        options["paged_attention_max_seq_len_kv"] = declared.paged.tokens
    return GraphSpec(
        operation="sdpa" if forward else "sdpa_backward",
        io_dtype=declared.query.dtype,
        operands=tuple(sorted((*tensors, *masking), key=lambda operand: operand.uid)),
        options=tuple(sorted((options | chosen).items())),
        score_mod=function.expression,
        score_mod_gradient=function.gradient,
        score_mod_tensors=function.tensors,
        whole_keys=wants_whole_keys(declared, device, direction),
    )
