"""One launch: from the operands in memory to the results in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...cudnn.graph import GraphSpec
from ...cudnn.memory import on_query_side
from ..fake_sequences import Values
from ..logits import Array, Features, Logits
from ..reference import attended, attention, attention_backward
from .faults import spoil
from .forwarded import checked_features
from .reading import Reading


@dataclass(frozen=True)
class Execution:
    """One launch.

    Attributes:
        graph: what is executed.
        values: the inputs by role, as they lie in memory.
        scalars: numbers read from the host, by role.
        rows: of the memory of packed results, by role.
        version: of cuDNN, as ``cudnnGetVersion()``.
    """

    graph: GraphSpec
    values: Values
    scalars: Mapping[str, float]
    rows: Mapping[str, int]
    version: int

    def results(self) -> dict[str, Array]:
        """By role, in their memory."""
        forward = self.graph.operation == "sdpa"
        with np.errstate(all="ignore"):
            padded = self._forward() if forward else self._backward()
            spoil(padded, self.given, self.version)
        return {
            role: self._stored(role, array)
            for role, array in padded.items()
            if self.graph.has(role)
        }

    @cached_property
    def given(self) -> Reading:
        return Reading(self.graph, self.values, self.scalars)

    def _forward(self) -> dict[str, Array]:
        output, lse, _ = attention(*self.given.operands, **self.given.features)
        results = {"output": output, "stats": lse[..., None]}
        if self.graph.has("max_logit"):
            results["max_logit"] = self._row_maxima()[..., None]
        return results

    def _row_maxima(self) -> Array:
        """``[B, Hq, Sq]``; NaN in rows of no sequence."""
        call = attended(*self.given.operands, self.given.features)
        maxima = np.full(call.q.shape[:3], np.nan)
        for head in call.heads():
            maxima[head.query_at] = Logits.of(head, call).final.max(axis=1, initial=-np.inf)
        return maxima

    def _backward(self) -> dict[str, Array]:
        padded = {
            role: self.given.queries.padded(self.values[role]) for role in ("output", "grad_output")
        }
        features = checked_features(self.given, padded["output"], padded["grad_output"])
        if self.graph.has("grad_bias") and features["bias"] is None:
            # The bias is part of the function, and the last that it adds: one of 0 behind it has
            # the same gradient.
            features = Features(**{**features, "bias": self._no_bias()})
        gradients = attention_backward(*self.given.operands, padded["grad_output"], **features)
        results = gradients._asdict()
        if self.graph.has("grad_bias"):
            results["grad_bias"] = self._whole_bias(results["grad_bias"])
        if self.graph.has("grad_sink"):
            results["grad_sink"] = results["grad_sink"].reshape(1, -1, 1, 1)
        return {role: array for role, array in results.items() if array is not None}

    def _no_bias(self) -> Array:
        """Zeros, broadcast along the axes along which the gradient of the bias is summed."""
        query, key, _ = self.given.operands
        computed = (*query.shape[:3], key.shape[2])
        declared = self.graph.operand("grad_bias").shape
        return np.zeros([1 if n == 1 else m for n, m in zip(declared, computed, strict=True)])

    def _whole_bias(self, gradient: Array) -> Array:
        whole = np.zeros(self.graph.operand("grad_bias").shape)
        _, _, rows, columns = gradient.shape
        whole[:, :, :rows, :columns] = gradient[: len(whole)]
        return whole

    def _stored(self, role: str, array: Array) -> Array:
        operand = self.graph.operand(role)
        if role in {"grad_bias", "grad_sink"}:
            return array
        side = self.given.queries if on_query_side(role) else self.given.keys
        return side.stored(array, operand, self.rows.get(role, 0))
