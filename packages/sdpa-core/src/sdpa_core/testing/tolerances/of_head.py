"""The errors of one head, carried through the formulas of both directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..logits import Array, Attended, Head, Logits
from ..reference import Forward, Gradients, add_reduced, probabilities
from .precision import FLUSHED, Precision

#: A relative error of probabilities cannot be larger.
_ALL_OF_IT = 1.0


@dataclass(frozen=True, slots=True)
class HeadErrors:
    """The errors of one head.

    Attributes:
        logits: its logits.
        p: ``P [Sq, Skv]``.
        slope: ``[Sq, Skv]``, derivative of the logits by the scaled products.
        of_logits: ``[Sq, Skv]``, error of each logit.
        of_lse: ``[Sq]``.
        relative: ``[Sq]``, relative error of all of row ``i`` of ``P`` in the forward pass, where
            numerator and denominator come from the same logits.
        recomputed: ``[Sq]``, the same in the backward pass, which has ``P`` from the LSE: where
            float32 cannot resolve that, anything from 0 to 1.
        of_sink: ``[Sq]``, the sink's probability.
        output: ``O [Sq, Dv]``.
    """

    head: Head
    call: Attended
    logits: Logits
    p: Array
    slope: Array
    of_logits: Array
    of_lse: Array
    relative: Array
    recomputed: Array
    of_sink: Array
    output: Array
    precision: Precision

    @classmethod
    def of(cls, head: Head, call: Attended, forward: Forward, precision: Precision) -> HeadErrors:
        logits = Logits.of(head, call)
        p, lse = probabilities(logits.final, head.sink)
        slope = logits.pull_back(np.ones(p.shape), head, call)
        of_logits = precision.f * _magnitudes(head, call, logits, slope, precision.of_function)
        largest = np.max(np.where(p > 0, of_logits, 0.0), axis=1, initial=0.0)
        defined = np.isfinite(lse)
        of_sink = np.zeros(lse.shape)
        if head.sink is not None:
            of_sink = np.exp(head.sink - lse)
        own = precision.f * (1 + np.abs(np.where(defined, lse, 0.0)))
        of_lse = np.where(defined, largest + own, 0.0)
        of_lse = np.where(defined & (np.abs(lse) > precision.largest_lse), np.inf, of_lse)
        seen = logits.visible.any(axis=1)
        relative = np.where(seen, np.minimum(of_lse, _ALL_OF_IT), 0.0)
        keys = np.count_nonzero(logits.visible, axis=1)
        recomputed = np.where(seen, np.minimum(of_lse, keys), 0.0)
        output = forward.output[head.query_at]
        return cls(
            head,
            call,
            logits,
            p,
            slope,
            of_logits,
            of_lse,
            relative,
            recomputed,
            of_sink,
            output,
            precision,
        )

    def _of_weights(self, relative: Array) -> Array:
        """``[Sq, Skv]``: error of an element of ``P`` by its own rounding and its own logit's."""
        own = (self.precision.u + relative[:, None]) * self.p
        return own + self.precision.tiny * self.logits.visible

    def of_output(self) -> Array:
        """``[Sq, Dv]``."""
        independent = np.sqrt(
            self.head.with_dropout(self._of_weights(self.relative)) ** 2 @ self.head.v**2
        )
        coherent = self.relative[:, None] * np.abs(self.output)
        return independent + coherent + self.precision.of_result(self.output)

    def of_largest(self, largest: float) -> float:
        """The error of the head's largest logit, if it may be in this sequence."""
        near = self.logits.visible & (self.logits.final >= largest - 1)
        own = self.precision.f * abs(largest) + FLUSHED if near.any() else 0.0
        return float(np.max(self.of_logits[near], initial=0.0)) + own

    def _of_logit_gradients(self, d_output: Array) -> tuple[Array, Array, Array]:
        """Of ``dS``: its error ``[Sq, Skv]``, ``[Sq, 1]`` that of ``D_i``, and ``dS`` itself."""
        u, f = self.precision.u, self.precision.f
        head, visible = self.head, self.logits.visible
        d_p = head.with_dropout(np.where(visible, d_output @ head.v.T, 0.0))
        terms = head.with_dropout(np.where(visible, np.abs(d_output) @ np.abs(head.v).T, 0.0))
        d = np.sum(self.p * d_p, axis=1, keepdims=True)
        weights = self._of_weights(self.recomputed)
        by_weights = np.sum((weights * d_p) ** 2, axis=1, keepdims=True)
        by_output = np.sum((u * d_output * self.output) ** 2, axis=1, keepdims=True)
        by_order = f * np.sum(np.abs(d_output * self.output), axis=1, keepdims=True)
        row = np.sqrt(by_weights + by_output) + by_order + self.recomputed[:, None] * np.abs(d)
        own = np.sqrt(
            (weights * (d_p - d)) ** 2 + (u * self.p * d_p) ** 2 + (f * self.p * terms) ** 2
        )
        return own + self.precision.tiny * visible, row, self.p * (d_p - d)

    def add_gradients(self, squares: Gradients, d_output: Array) -> None:
        """Add this head's part to the squared errors of the gradients."""
        head, factor = self.head, self.call.scale**2
        own, of_row, d_s = self._of_logit_gradients(d_output)
        through = np.abs(self.slope)
        own_scaled = own * through + self._slope_error() * np.abs(d_s)
        mean_key = (self.p * self.slope) @ head.k
        by_row = self.p * of_row
        squares.grad_query[head.query_at] = factor * (
            own_scaled**2 @ head.k**2 + (of_row * mean_key) ** 2
        )
        squares.grad_key[head.key_at] += factor * (
            (own_scaled**2 + (by_row * through) ** 2).T @ head.q**2
        )
        of_weights = head.with_dropout(self._of_weights(self.recomputed))
        squares.grad_value[head.key_at] += (of_weights**2).T @ d_output**2
        if squares.grad_bias is not None:
            add_reduced(squares.grad_bias, own**2 + by_row**2, head)
        if squares.grad_sink is not None:
            d = np.sum(d_output * self.output, axis=1)
            error = of_row[:, 0] + (self.of_lse + self.precision.f) * np.abs(d)
            squares.grad_sink[head.at.head] += np.sum((self.of_sink * error) ** 2)

    def _slope_error(self) -> Array | float:
        """Error of the derivative, of functions whose curvature is about 1."""
        if self.call.softcap is None and self.call.function is None:
            return 0.0
        return np.where(self.logits.visible, self.of_logits + self.precision.f, 0.0)


def _magnitudes(
    head: Head, call: Attended, logits: Logits, slope: Array, of_function: float
) -> Array:
    """``[Sq, Skv]``: the sum of the magnitudes of what makes a logit."""
    products = abs(call.scale) * (np.abs(head.q) @ np.abs(head.k).T)
    total = products * np.abs(slope) + np.abs(head.added)
    if call.softcap is not None or call.function is not None:
        total = total + of_function * np.abs(logits.final - head.added) + 1
    return np.where(logits.visible, total, 0.0)
