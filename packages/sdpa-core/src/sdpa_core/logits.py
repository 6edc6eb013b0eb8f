"""A function of the logits, as a problem holds it: ``score_mod`` after it was traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .tensor import TensorSpec

if TYPE_CHECKING:
    from .score_mod import Expression


@dataclass(frozen=True, slots=True)
class ScoreMod:
    """``S = f(S)`` for the scaled logits ``S [B, Hq, Sq, Skv]``.

    The expression is the key: two functions share a plan exactly if they compute the same.

    Attributes:
        expression: ``f``.
        gradient: ``dS`` from the gradient of ``f(S)``; None: derived from the expression.
        tensors: auxiliary operands, each broadcastable to ``S``; they have no gradient.
        scalars: how many float32 numbers are given at launch.
    """

    expression: Expression
    gradient: Expression | None = None
    tensors: tuple[TensorSpec, ...] = ()
    scalars: int = 0
