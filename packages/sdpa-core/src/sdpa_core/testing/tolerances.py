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
* sum in another order: ``S_ij`` is good to ``f`` times the sum of its terms' magnitudes (products,
  bias, ALiBi, what a function of the logits adds), and so is the exponent of ``P_ij``. A key of no
  weight does not matter;
* compute the derivative of a function of the logits in float32.

Dropout multiplies what it keeps, with its error, by ``1 / (1 - p)``. A sink is one more term of the
denominator.

Numbers below the smallest normal one may be flushed to zero, except in float16, where denser
numbers follow and kernels keep them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ..dtypes import DType
from .logits import Array, Attended, Features, Head, Logits
from .reference import (
    Forward,
    Gradients,
    add_reduced,
    attended,
    attention,
    attention_backward,
    incoming,
    probabilities,
    zero_gradients,
)
from .rounding import FORMATS

#: Tolerance over typical error. Over all of ``CASES``, float32 arithmetic with 16-bit matrix
#: products reaches 2.1 at its worst element (2.6 in rows whose log-sum-exp float32 cannot resolve),
#: plain float32 1.4; one more rounding of the logits to 16 bits reaches 2 to 240.
MARGIN = 4.0

#: Growth of errors inside one matrix product: partial sums, truncating accumulators.
_ACCUMULATION = 4.0

#: Kernels hold the scale in float32, and may take a smaller one for 0.
_FLUSHED = FORMATS[DType.FLOAT32].smallest_normal

#: A relative error of probabilities cannot be larger.
_ALL_OF_IT = 1.0


class ErrorScales(NamedTuple):
    """The typical error of each element; shapes as the results'. Gradients: None in inference."""

    output: Array
    lse: Array
    max_logit: Array
    grad_query: Array | None = None
    grad_key: Array | None = None
    grad_value: Array | None = None
    grad_bias: Array | None = None
    grad_sink: Array | None = None


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
        sums = FORMATS[_sums_of(dtype)]
        tiny = form.smallest_normal
        if dtype is DType.FLOAT16:
            tiny *= form.unit_roundoff
        return cls(form.unit_roundoff, _ACCUMULATION * sums.unit_roundoff, tiny)

    def of_result(self, result: Array) -> Array:
        """The error of storing it."""
        return self.u * np.abs(result) + self.tiny


def _sums_of(dtype: DType) -> DType:
    return DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32


def error_scales(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    grad_output: ArrayLike | None = None,
    *,
    dtype: DType,
    bias_dtype: DType | None = None,
    **features: Unpack[Features],
) -> ErrorScales:
    """Typical errors of an implementation in ``dtype`` for these finite operands.

    Args:
        query, key, value, features: as for ``attention``.
        grad_output: as for ``attention_backward``; None leaves the gradients out.
        dtype: element type of the operands.
        bias_dtype: that of the bias; None: the operands'.
    """
    forward = attention(query, key, value, **features)
    exact = None
    if grad_output is not None:
        exact = attention_backward(query, key, value, grad_output, **features)
    call = attended(query, key, value, features)
    grad = None if grad_output is None else incoming(grad_output, call)
    return scales_of(call, features, grad, forward, exact, dtype, bias_dtype or dtype)


def scales_of(
    call: Attended,
    features: Features,
    grad: Array | None,
    forward: Forward,
    exact: Gradients | None,
    dtype: DType,
    bias_dtype: DType,
) -> ErrorScales:
    """``error_scales`` of a call whose exact results are known."""
    precision = _Precision.of(dtype)
    output, lse = np.zeros(forward.output.shape), np.zeros(forward.lse.shape)
    max_logit = np.zeros(forward.max_logit.shape)
    squares = zero_gradients(call, features)
    with np.errstate(invalid="ignore", over="ignore"):
        for head in call.heads():
            errors = _HeadErrors.of(head, call, forward, precision)
            output[head.query_at] = errors.of_output()
            lse[head.query_at] = errors.of_lse
            at = head.at.head
            max_logit[at] = np.maximum(max_logit[at], errors.of_largest(forward.max_logit[at]))
            if grad is not None:
                errors.add_gradients(squares, grad[head.query_at])
    if exact is None:
        return ErrorScales(output, lse, max_logit)
    stored = {
        # cuDNN has the gradient of a float32 bias in the query's type.
        "grad_bias": max(_Precision.of(bias_dtype), precision, key=lambda p: p.u),
        "grad_sink": _Precision.of(DType.FLOAT32),
    }
    gradients = {
        name: np.sqrt(square) + stored.get(name, precision).of_result(gradient)
        for name, square, gradient in zip(Gradients._fields, squares, exact, strict=True)
        if square is not None and gradient is not None
    }
    return ErrorScales(output, lse, max_logit, **gradients)


@dataclass(frozen=True, slots=True)
class _HeadErrors:
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
    precision: _Precision

    @classmethod
    def of(cls, head: Head, call: Attended, forward: Forward, precision: _Precision) -> _HeadErrors:
        logits = Logits.of(head, call)
        p, lse = probabilities(logits.final, head.sink)
        slope = logits.pull_back(np.ones(p.shape), head, call)
        of_logits = precision.f * _magnitudes(head, call, logits, slope)
        largest = np.max(np.where(p > 0, of_logits, 0.0), axis=1, initial=0.0)
        defined = np.isfinite(lse)
        of_sink = np.zeros(lse.shape)
        if head.sink is not None:
            of_sink = np.exp(head.sink - lse)
        own = precision.f * (1 + np.abs(np.where(defined, lse, 0.0)))
        of_lse = np.where(defined, largest + own, 0.0)
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
        own = self.precision.f * abs(largest) + _FLUSHED if near.any() else 0.0
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


def _magnitudes(head: Head, call: Attended, logits: Logits, slope: Array) -> Array:
    """``[Sq, Skv]``: the sum of the magnitudes of what makes a logit."""
    products = abs(call.scale) * (np.abs(head.q) @ np.abs(head.k).T)
    total = products * np.abs(slope) + np.abs(head.added)
    if call.softcap is not None or call.function is not None:
        total = total + np.abs(logits.final - head.added) + 1
    return np.where(logits.visible, total, 0.0)


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
