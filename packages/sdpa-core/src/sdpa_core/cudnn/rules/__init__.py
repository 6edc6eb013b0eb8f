"""What cuDNN's 16-bit attention takes, as rules that need neither cuDNN nor a GPU.

Each rule yields its reasons; all of them are asked, so that a caller sees everything at once.
cuDNN itself has the last word (``probe``). Sources: the checks of nvidia-cudnn-frontend 1.32 and
its operation documents, unless a rule names another.
"""

from __future__ import annotations

from ...device import DeviceSpec
from ...problem import AttentionProblem, Direction
from ...reasons import Unsupported
from . import features, gradients, masks, sequences, shapes, where
from .rule import Rule

#: In the order in which their reasons are told.
RULES: tuple[Rule, ...] = (
    where.version,
    where.released_faults,
    shapes.dtype,
    shapes.head_dims,
    shapes.backward_head_dims,
    shapes.single_token_backward,
    shapes.memory,
    masks.bottom_right,
    masks.alibi,
    masks.bias,
    sequences.packed,
    sequences.packed_queries,
    sequences.packed_keys,
    sequences.paged,
    features.sink,
    features.max_logit,
    gradients.deterministic,
    gradients.bias_gradient,
)


def reasons(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> tuple[Unsupported, ...]:
    """Every reason of every rule. On another platform than CUDA that is the only reason."""
    wrong_platform = tuple(where.platform(problem, device, direction))
    if wrong_platform:
        return wrong_platform
    return tuple(reason for rule in RULES for reason in rule(problem, device, direction))
