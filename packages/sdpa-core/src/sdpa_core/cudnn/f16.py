"""Graphs of 16-bit attention whose masks are cuDNN's own options."""

from __future__ import annotations

from ..device import DeviceSpec
from ..problem import AttentionProblem, Direction
from . import operands, options
from .dimensions import takes_cumulative_lengths
from .graph import Operand
from .known_bad import wants_full_lengths
from .uids import F16Uid


def masks(
    declared: AttentionProblem, tokens_q: int, device: DeviceSpec, direction: Direction
) -> tuple[list[Operand], dict[str, object]]:
    """Operands and options of what changes or hides logits: band, bias, ALiBi, lengths.

    Args:
        tokens_q: of the caller's queries; what is declared may be more.
    """
    tensors: list[Operand] = []
    chosen = options.band_options(declared.band)
    bias = operands.bias_spec(declared)
    if bias is not None:
        tensors.append(operands.tensor(F16Uid.BIAS, bias))
    if declared.alibi:
        chosen["use_alibi_mask"] = True
    if declared.has_lengths or wants_full_lengths(declared, device, direction):
        chosen["use_padding_mask"] = True
        if takes_cumulative_lengths(declared, device, direction):
            tensors += operands.cumulative_lengths(declared.batch)
            chosen["implementation"] = options.UNIFIED
        else:
            tensors += operands.lengths(declared, tokens_q)
    return tensors, chosen
