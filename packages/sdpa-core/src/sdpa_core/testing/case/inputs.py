"""The data of a case."""

from __future__ import annotations

from typing import NamedTuple

from ..logits import Array, Mask


class Inputs(NamedTuple):
    """Operands in float64, each number one of its element type.

    Attributes:
        query: ``[B, Hq, Sq, D]``.
        key: ``[B, Hkv, Skv, D]``.
        value: ``[B, Hkv, Skv, Dv]``.
        grad_output: ``[B, Hq, Sq, Dv]``.
        bias: see ``Case.bias``.
        mask: boolean, True is visible; see ``Case.mask``.
        alibi_slopes: ``[Hq]`` or ``[B, Hq]``, float32 numbers; None for the standard ones too.
        sink: ``[Hq]``, float32 numbers.
        auxiliary: what the score_mod reads besides; arrays without axes are scalars that are given
            at launch.
    """

    query: Array
    key: Array
    value: Array
    grad_output: Array
    bias: Array | None = None
    mask: Mask | None = None
    alibi_slopes: Array | None = None
    sink: Array | None = None
    auxiliary: tuple[Array, ...] = ()

    @property
    def operands(self) -> tuple[Array, Array, Array, Array]:
        """Query, key, value, and the output's gradient."""
        return self.query, self.key, self.value, self.grad_output
