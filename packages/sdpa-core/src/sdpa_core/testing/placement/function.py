"""A function of the logits, as a problem holds it."""

from __future__ import annotations

from ... import score_mod
from ...layout import Shape
from ...logits import ScoreMod
from ...tensor import TensorSpec
from ..score_mods import ScoreModCase


def traced(function: ScoreModCase, full: Shape) -> ScoreMod:
    """A function of logits of this shape, as a problem holds it."""
    shapes = [operand.shape(full) for operand in function.auxiliary]
    kinds = [
        score_mod.ScalarArg() if shape is None else score_mod.TensorArg(operand.dtype, shape)
        for operand, shape in zip(function.auxiliary, shapes, strict=True)
    ]
    found = score_mod.trace(function.callback, kinds)
    bprop = function.bprop and score_mod.trace_bprop(function.bprop, kinds)
    tensors = (
        TensorSpec.dense(shape, operand.dtype)
        for operand, shape in zip(function.auxiliary, shapes, strict=True)
        if shape is not None
    )
    gradient = bprop.expression if bprop else None
    return ScoreMod(found.expression, gradient, tuple(tensors), len(found.scalars))
