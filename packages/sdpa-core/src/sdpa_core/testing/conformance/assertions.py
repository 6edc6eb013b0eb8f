"""What is asserted of a result: values, types, bits, gaps, and that there is no more."""

from __future__ import annotations

from types import EllipsisType

import numpy as np
from numpy.typing import NDArray

from ..case import Case
from ..expected import expected
from ..logits import Array
from ..subject import Result
from ..tolerances import assert_close
from .results import dtype_of

#: An index of a part of a result.
Part = slice | tuple[slice, ...] | EllipsisType | NDArray[np.bool_]


def assert_matches(result: Result, case: Case, names: tuple[str, ...], *, only: Part = ...) -> None:
    """Raise unless these results have the right type, and the oracle's values within tolerance.

    Args:
        result: of the case's own inputs, at least where ``only`` looks.
        case: what was run.
        names: which results.
        only: index of the part to compare.
    """
    if "dropout" in case.tags and result.dropout is None:
        raise AssertionError("the result does not say what dropout was computed from")
    exact, scales = expected(case, result.dropout)
    for name in names:
        array = named(result, name)
        wanted = dtype_of(case, name)
        if result.dtypes.get(name) != wanted:
            raise AssertionError(f"{name} has dtype {result.dtypes.get(name)}, expected {wanted}")
        if array.shape != exact[name].shape:
            shapes = f"{list(array.shape)}, expected {list(exact[name].shape)}"
            raise AssertionError(f"{name} has shape {shapes}")
        assert_close(name, array[only], exact[name][only], scales[name][only])


def assert_same_bits(first: Result, second: Result, names: tuple[str, ...]) -> None:
    """Raise unless these results are equal; NaN equals NaN."""
    for name in names:
        one, other = named(first, name), named(second, name)
        if not np.array_equal(one, other, equal_nan=True):
            count = np.count_nonzero((one != other) & ~(np.isnan(one) & np.isnan(other)))
            raise AssertionError(f"{name} differs in {count} of {one.size} elements")


def assert_only(result: Result, names: tuple[str, ...]) -> None:
    """Raise if the result holds anything else: nothing is computed that was not asked for."""
    extra = result.arrays().keys() - set(names)
    if extra:
        raise AssertionError(f"the result also holds {sorted(extra)}")


def assert_gaps(result: Result, case: Case, names: tuple[str, ...]) -> None:
    """Raise unless the rows of packed results that belong to no sequence are 0, or -inf."""
    packings = dict.fromkeys(("output", "lse", "grad_query"), case.packing_q)
    packings |= dict.fromkeys(("grad_key", "grad_value"), case.packing_kv)
    for name in names:
        packing = packings[name]
        if packing is None:
            continue
        rows, wanted = result.gaps.get(name), -np.inf if name == "lse" else 0.0
        count = packing.tokens - sum(packing.lengths)
        if rows is None or len(rows) != count:
            raise AssertionError(f"gaps hold no {count} rows of {name}")
        if not (rows == wanted).all():
            raise AssertionError(f"{name} is not {wanted} in the rows of no sequence")


def named(result: Result, name: str) -> Array:
    """A result that must be there."""
    array = result.arrays().get(name)
    if array is None:
        raise AssertionError(f"{name} is missing")
    return array
