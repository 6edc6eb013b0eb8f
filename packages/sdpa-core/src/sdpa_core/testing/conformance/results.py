"""Which results a case has, and of which element types."""

from __future__ import annotations

from ...dtypes import DType
from ...problem import Softmax
from ..case import Case

#: Names of the results that every case has in training, in the order of the oracle's.
RESULTS = ("output", "lse", "grad_query", "grad_key", "grad_value")


def results_of(case: Case) -> tuple[str, ...]:
    """Names of all that a training run of a case gives with its log-sum-exp."""
    wanted = {
        "grad_bias": case.bias is not None and case.bias_grad,
        "grad_sink": case.softmax is Softmax.LEARNABLE,
    }
    return (*RESULTS, *(name for name, asked in wanted.items() if asked))


def exact_results(case: Case) -> tuple[str, ...]:
    """Names of the results of inference that no second run may change."""
    # A single query's statistics are merged from split keys, in any order.
    return ("output",) if "decode" in case.tags else ("output", "lse")


def dtype_of(case: Case, name: str) -> DType:
    """Element type that a result has."""
    if name == "grad_sink":
        return DType.FLOAT32  # the sink's own, see ``Inputs``
    if name in {"lse", "max_logit"}:
        return DType.FLOAT64 if case.dtype is DType.FLOAT64 else DType.FLOAT32
    return case.effective_bias_dtype if name == "grad_bias" else case.dtype
