"""What one rounding costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...dtypes import DType
from ..logits import Array
from ..rounding import FORMATS

#: Growth of errors inside one matrix product: partial sums, truncating accumulators.
_ACCUMULATION = 4.0

#: Error of a function of the logits over that of a sum, in kernels, which take 16-bit operands:
#: cuDNN's tanh has a relative error of up to 1.4e-5 (H200, cuDNN 9.19).
_FUNCTION = 16.0

#: Kernels have logarithms to the base of 2: a log-sum-exp beyond this may be infinite (H200, 9.19).
_LARGEST_LSE = float(np.finfo(np.float32).max / np.log2(np.e))

#: Kernels hold the scale in float32, and may take a smaller one for 0.
FLUSHED = FORMATS[DType.FLOAT32].smallest_normal


@dataclass(frozen=True, slots=True)
class Precision:
    """Errors of one rounding.

    Attributes:
        u: relative, to the operands' type.
        f: relative, of a sum of products.
        tiny: absolute, where numbers underflow.
        of_function: that of a function of the logits, over ``f``.
        largest_lse: what may be infinite lies beyond.
    """

    u: float
    f: float
    tiny: float
    of_function: float
    largest_lse: float

    @classmethod
    def of(cls, dtype: DType) -> Precision:
        form = FORMATS[dtype]
        sums = FORMATS[_sums_of(dtype)]
        tiny = form.smallest_normal
        if dtype is DType.FLOAT16:
            tiny *= form.unit_roundoff
        by_kernels = dtype in (DType.FLOAT16, DType.BFLOAT16)
        return cls(
            form.unit_roundoff,
            _ACCUMULATION * sums.unit_roundoff,
            tiny,
            _FUNCTION if by_kernels else 1.0,
            _LARGEST_LSE if by_kernels else np.inf,
        )

    def of_result(self, result: Array) -> Array:
        """The error of storing it."""
        return self.u * np.abs(result) + self.tiny


def _sums_of(dtype: DType) -> DType:
    return DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
