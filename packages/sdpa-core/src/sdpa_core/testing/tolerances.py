"""How far a correct implementation may be from the oracle, element by element.

A fixed relative tolerance is wrong for attention: where the logits are all alike, ``dQ`` is a
small difference of large terms and a faultless 16-bit kernel is off by a third of it, while the
log-sum-exp is good to seven digits always. So the tolerance follows from what an implementation
must round. It is a typical error, carried through the formulas of ``reference``, times ``MARGIN``.

With ``u`` the unit roundoff of the operands' type and ``f`` that of sums of products (float32 for
all types but float64), an implementation may

* store results in the operands' type: ``u |result|`` (the LSE in float32);
* round ``P``, ``dP`` and ``dS`` to that type, for the second matrix product: ``u`` per element,
  independent of each other, hence added in squares;
* compute ``D_i`` from the rounded output: one error for the whole row ``i``, which reaches ``dQ_i``
  through the mean key ``sum_j P_ij k_j``;
* sum in another order: ``S_ij`` is good to ``f`` times the sum of its terms' magnitudes, and so is
  the exponent of ``P_ij``.

Numbers below the smallest normal one may be flushed to zero, except in float16, where denser
numbers follow and kernels keep them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..dtypes import DType
from ..mask import Band
from ..validate import default_scale
from .reference import (
    Array,
    Forward,
    Gradients,
    Head,
    Mask,
    attention,
    attention_backward,
    heads,
    probabilities,
    visible_pairs,
)
from .rounding import FORMATS

#: Tolerance over typical error. Over all of ``CASES``, float32 arithmetic with 16-bit matrix
#: products reaches 2.1 at its worst element, plain float32 1.4; one more rounding of the logits
#: to 16 bits reaches 2 to 240.
MARGIN = 4.0

#: Growth of errors inside one matrix product: partial sums, truncating accumulators.
_ACCUMULATION = 4.0


class ErrorScales(NamedTuple):
    """The typical error of each element; shapes as the results'. Gradients: None in inference."""

    output: Array
    lse: Array
    grad_query: Array | None = None
    grad_key: Array | None = None
    grad_value: Array | None = None


@dataclass(frozen=True, slots=True)
class _Precision:
    """Errors of one rounding.

    Attributes:
        u: relative, to the operands' type.
        f: relative, of a sum of products.
        tiny: absolute, where numbers underflow.
    """

    u: float
    f: float
    tiny: float

    @classmethod
    def of(cls, dtype: DType) -> _Precision:
        form = FORMATS[dtype]
        sums = FORMATS[DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32]
        tiny = form.smallest_normal
        if dtype is DType.FLOAT16:
            tiny *= form.unit_roundoff
        return cls(form.unit_roundoff, _ACCUMULATION * sums.unit_roundoff, tiny)

    def of_result(self, result: Array) -> Array:
        """The error of storing it."""
        return self.u * np.abs(result) + self.tiny


def error_scales(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    grad_output: ArrayLike | None = None,
    *,
    dtype: DType,
    band: Band | None = None,
    scale: float | None = None,
) -> ErrorScales:
    """Typical errors of an implementation in ``dtype`` for these finite operands.

    Args:
        query, key, value, band, scale: as for ``attention``.
        grad_output: as for ``attention_backward``; None leaves the gradients out.
        dtype: element type of the operands.
    """
    q, k, v = (np.asarray(operand, dtype=np.float64) for operand in (query, key, value))
    scale = default_scale(q.shape[-1]) if scale is None else scale
    forward = attention(q, k, v, band=band, scale=scale)
    precision = _Precision.of(dtype)
    visible = visible_pairs(band or Band(), q.shape[2], k.shape[2])
    output, lse = np.zeros(forward.output.shape), np.zeros(forward.lse.shape)
    grad = None if grad_output is None else np.asarray(grad_output, dtype=np.float64)
    squares = Gradients(np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape))
    for head in heads(q, k, v):
        errors = _HeadErrors.of(head, forward, visible, scale, precision)
        output[head.query_at] = errors.of_output()
        lse[head.query_at] = errors.relative
        if grad is not None:
            errors.add_gradients(squares, grad[head.query_at])
    if grad is None:
        return ErrorScales(output, lse)
    exact = attention_backward(q, k, v, grad, band=band, scale=scale)
    gradients = (
        np.sqrt(square) + precision.of_result(gradient)
        for square, gradient in zip(squares, exact, strict=True)
    )
    return ErrorScales(output, lse, *gradients)


@dataclass(frozen=True, slots=True)
class _HeadErrors:
    """The errors of one head.

    Attributes:
        p: ``P [Sq, Skv]``.
        visible: ``[Sq, Skv]``.
        relative: ``[Sq]``, error of ``LSE_i``, hence relative error of all of row ``i`` of ``P``.
        output: ``O [Sq, Dv]``.
    """

    head: Head
    p: Array
    visible: Mask
    scale: float
    relative: Array
    output: Array
    precision: _Precision

    @classmethod
    def of(
        cls, head: Head, forward: Forward, visible: Mask, scale: float, precision: _Precision
    ) -> _HeadErrors:
        p, lse = probabilities(head.q, head.k, visible, scale)
        magnitude = np.where(visible, abs(scale) * (np.abs(head.q) @ np.abs(head.k).T), 0.0)
        largest = np.max(magnitude, axis=1, initial=0.0)
        seen = visible.any(axis=1)
        relative = precision.f * (1 + largest + np.abs(np.where(seen, lse, 0.0)))
        output = forward.output[head.query_at]
        return cls(head, p, visible, scale, np.where(seen, relative, 0.0), output, precision)

    @property
    def weight_error(self) -> Array:
        """``[Sq, Skv]``: error of an element of ``P`` by its own rounding and its own logit's."""
        own = (self.precision.u + self.relative[:, None]) * self.p
        return own + self.precision.tiny * self.visible

    def of_output(self) -> Array:
        """``[Sq, Dv]``."""
        independent = np.sqrt(self.weight_error**2 @ self.head.v**2)
        coherent = self.relative[:, None] * np.abs(self.output)
        return independent + coherent + self.precision.of_result(self.output)

    def _of_logit_gradients(self, d_output: Array) -> tuple[Array, Array]:
        """Errors of ``dS``: ``[Sq, Skv]`` of each element, and ``[Sq, 1]`` of ``D_i``."""
        u, f = self.precision.u, self.precision.f
        d_p = np.where(self.visible, d_output @ self.head.v.T, 0.0)
        terms = np.where(self.visible, np.abs(d_output) @ np.abs(self.head.v).T, 0.0)
        d = np.sum(self.p * d_p, axis=1, keepdims=True)
        by_weights = np.sum((self.weight_error * d_p) ** 2, axis=1, keepdims=True)
        by_output = np.sum((u * d_output * self.output) ** 2, axis=1, keepdims=True)
        by_order = f * np.sum(np.abs(d_output * self.output), axis=1, keepdims=True)
        row = np.sqrt(by_weights + by_output) + by_order + self.relative[:, None] * np.abs(d)
        own = np.sqrt(
            (self.weight_error * (d_p - d)) ** 2
            + (u * self.p * d_p) ** 2
            + (f * self.p * terms) ** 2
        )
        return own + self.precision.tiny * self.visible, row

    def add_gradients(self, squares: Gradients, d_output: Array) -> None:
        """Add this head's part to the squared errors of the three gradients."""
        head, factor = self.head, self.scale**2
        own, of_row = self._of_logit_gradients(d_output)
        mean_key = self.p @ head.k
        squares.grad_query[head.query_at] = factor * (own**2 @ head.k**2 + (of_row * mean_key) ** 2)
        squares.grad_key[head.key_at] += factor * ((own**2 + (self.p * of_row) ** 2).T @ head.q**2)
        squares.grad_value[head.key_at] += (self.weight_error**2).T @ d_output**2


def assert_close(
    name: str, actual: ArrayLike, exact: ArrayLike, scale: ArrayLike, *, margin: float = MARGIN
) -> None:
    """Raise unless ``|actual - exact| <= margin * scale`` everywhere; infinities must be equal.

    Args:
        name: the tensor, for the message.
        actual, exact: of equal shapes.
        scale: typical error of each element, see ``error_scales``.
        margin: tolerance over typical error.

    Raises:
        AssertionError: names the tensor, its worst element, what was found and expected there,
            and by what factor the tolerance was missed.
    """
    got, want = np.asarray(actual, dtype=np.float64), np.asarray(exact, dtype=np.float64)
    if got.shape != want.shape:
        raise AssertionError(f"{name} has shape {list(got.shape)}, expected {list(want.shape)}")
    tolerance = margin * np.broadcast_to(np.asarray(scale, dtype=np.float64), want.shape)
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0.0, np.abs(got - want))
    # A NaN compares false, so it counts as an error.
    wrong = ~(error <= tolerance)
    if not wrong.any():
        return
    excess = np.where(np.isnan(error), np.inf, error) / np.maximum(tolerance, np.finfo(float).tiny)
    worst = tuple(
        int(i) for i in np.unravel_index(np.argmax(np.where(wrong, excess, 0)), want.shape)
    )
    raise AssertionError(
        f"{name}{list(worst)} is {got[worst]:.6g}, expected {want[worst]:.6g}: "
        f"error {error[worst]:.3g} is {excess[worst]:.3g} times the tolerance "
        f"{tolerance[worst]:.3g}; {np.count_nonzero(wrong)} of {want.size} elements are wrong"
    )
