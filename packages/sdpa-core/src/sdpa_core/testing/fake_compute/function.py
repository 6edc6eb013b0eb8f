"""A graph's function of the logits, evaluated on the numbers of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import score_mod
from ...cudnn.graph import GraphSpec
from ..fake_sequences import Values
from ..logits import Array, At
from ..score_mods import part


@dataclass(frozen=True)
class ExpressionFunction:
    """``logits.Function`` of a graph that holds its function of the logits, masks included."""

    graph: GraphSpec
    values: Values
    scalars: Mapping[str, float]

    def value(self, score: Array, at: At) -> Array:
        return self._evaluated(self.graph.score_mod, score, at, None)

    def pull_back(self, gradient: Array, score: Array, at: At) -> Array:
        return self._evaluated(
            self.graph.score_mod_gradient or self._derived(), score, at, gradient
        )

    def _derived(self) -> score_mod.Expression:
        """Of a forward graph, which holds no gradient: only error scales ask for it."""
        assert self.graph.score_mod is not None
        return score_mod.gradient(self.graph.score_mod)

    def _evaluated(
        self, expression: score_mod.Expression | None, score: Array, at: At, grad: Array | None
    ) -> Array:
        assert expression is not None

        def leaf(node: score_mod.Node) -> NDArray[Any]:
            match node:
                case score_mod.Score():
                    return score
                case score_mod.Grad() if grad is not None:
                    return grad
                case score_mod.Index(axis):
                    return np.asarray(_index(at, axis))
                case score_mod.Tensor(position, _):
                    whole = self.values[self.graph.score_mod_tensors[position]]
                    return _typed(part(whole, at), node.type)
                case score_mod.Scalar(position):
                    return np.asarray(self.scalars[f"score_mod_scalar_{position}"])
                case score_mod.Constant(value):
                    return _typed(np.asarray(value), node.type)
            raise AssertionError(f"{node} is no leaf of this expression")

        ops = score_mod.array_ops(
            np, lambda x: np.asarray(x, np.float64), lambda x: np.asarray(x, np.int64)
        )
        return np.broadcast_to(score_mod.evaluate(expression, ops, leaf), score.shape)


def _index(at: At, axis: score_mod.Axis) -> Any:
    return {
        score_mod.Axis.BATCH: at.batch,
        score_mod.Axis.HEAD: at.head,
        score_mod.Axis.QUERY: at.i,
        score_mod.Axis.KEY: at.j,
    }[axis]


def _typed(array: NDArray[Any], kind: score_mod.Type) -> NDArray[Any]:
    types = {
        score_mod.Type.FLOAT: np.float64,
        score_mod.Type.INT: np.int64,
        score_mod.Type.BOOL: np.bool_,
    }
    return array.astype(types[kind])
