"""Floating-point formats for NumPy, which has no bfloat16: rounding, and the stored bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..dtypes import DType


class Format(NamedTuple):
    """A binary floating-point format.

    Attributes:
        digits: bits of the significand, the hidden one included.
        min_exponent: the smallest normal number is ``2 ** min_exponent``.
        largest: the largest finite number.
        storage: NumPy's type of the same size that holds it; bits where NumPy lacks the format.
    """

    digits: int
    min_exponent: int
    largest: float
    storage: DTypeLike

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding a normal number to nearest."""
        return 2.0**-self.digits

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.min_exponent


FORMATS = {
    DType.FLOAT16: Format(11, -14, 65504.0, np.float16),
    DType.BFLOAT16: Format(8, -126, (2 - 2**-7) * 2.0**127, np.uint16),
    DType.FLOAT32: Format(24, -126, (2 - 2**-23) * 2.0**127, np.float32),
    DType.FLOAT64: Format(53, -1022, float(np.finfo(np.float64).max), np.float64),
}


def round_to(values: ArrayLike, dtype: DType) -> NDArray[np.float64]:
    """The nearest numbers of ``dtype``, ties to even, still as float64.

    Rounds once: going through float32 would round some numbers twice. Subnormal numbers, overflow
    to infinity, infinities and NaN are those of IEEE 754.
    """
    exact = np.asarray(values, dtype=np.float64)
    if dtype is DType.FLOAT64:
        return exact
    form = FORMATS[dtype]
    _, exponent = np.frexp(exact)
    # frexp's fraction lies in [0.5, 1), so a normal number's exponent is at least min + 1.
    ulp = np.maximum(exponent, form.min_exponent + 1) - form.digits
    with np.errstate(over="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(exact, -ulp)), ulp)
    return np.where(np.abs(rounded) > form.largest, np.copysign(np.inf, exact), rounded)


#: NumPy's types of numbers that need no rounding.
_EXACT: dict[DType, DTypeLike] = {
    DType.INT32: np.int32,
    DType.INT64: np.int64,
    DType.UINT8: np.uint8,
    DType.BOOL: np.bool_,
}


def encode(values: ArrayLike, dtype: DType) -> NDArray[Any]:
    """The numbers as they lie in memory; bfloat16 as ``uint16`` bits."""
    if dtype in _EXACT:
        return np.asarray(values).astype(_EXACT[dtype])
    rounded = round_to(values, dtype)
    if dtype is not DType.BFLOAT16:
        return rounded.astype(FORMATS[dtype].storage)
    bits = rounded.astype(np.float32).view(np.uint32) >> 16
    return bits.astype(np.uint16)


def decode(stored: NDArray[Any], dtype: DType) -> NDArray[np.float64]:
    """The numbers that ``encode`` stored."""
    if dtype is not DType.BFLOAT16:
        return stored.astype(np.float64)
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
