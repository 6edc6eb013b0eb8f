"""The comparison with the oracle's values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

#: Tolerance over typical error. Over all of ``CASES``, float32 arithmetic with 16-bit matrix
#: products reaches 2.1 at its worst element (2.6 in rows whose log-sum-exp float32 cannot resolve),
#: plain float32 1.4; one more rounding of the logits to 16 bits reaches 2 to 240.
MARGIN = 4.0


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
