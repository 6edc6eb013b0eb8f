"""Checks of what a caller passes; every error names the argument and says what was expected.

The adapters describe their arrays as ``TensorSpec`` in ``[B, H, S, D]`` and call this once per
new combination of shapes, so that both frameworks refuse the same calls with the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .dtypes import FLOATING
from .tensor import TensorSpec

_NAMES = ("query", "key", "value")


def check_operands(query: TensorSpec, key: TensorSpec, value: TensorSpec) -> None:
    """Raise unless the three operands form an attention problem.

    Raises:
        TypeError: an element type is not floating point, or the three differ.
        ValueError: a shape does not fit.
    """
    operands = dict(zip(_NAMES, (query, key, value), strict=True))
    _check_dtypes(operands)
    _check_shapes(operands)


def _check_dtypes(operands: Mapping[str, TensorSpec]) -> None:
    query = operands["query"]
    if query.dtype not in FLOATING:
        allowed = ", ".join(sorted(FLOATING))
        raise TypeError(f"query has dtype {query.dtype}; attention takes one of {allowed}")
    for name in ("key", "value"):
        if operands[name].dtype != query.dtype:
            raise TypeError(
                f"{name} has dtype {operands[name].dtype}, query has {query.dtype}; "
                f"query, key and value must have the same dtype"
            )


def _check_shapes(operands: Mapping[str, TensorSpec]) -> None:
    for name, spec in operands.items():
        if len(spec.shape) != 4:
            raise ValueError(
                f"{name} has shape {list(spec.shape)}; "
                f"expected 4 axes [batch, heads, tokens, head_dim]"
            )
    query, key, value = (operands[name].shape for name in _NAMES)
    for name in ("key", "value"):
        if operands[name].shape[0] != query[0]:
            raise ValueError(
                f"{name} has batch size {operands[name].shape[0]}, query has {query[0]}; "
                f"they must be equal"
            )
    if value[1] != key[1]:
        raise ValueError(f"value has {value[1]} heads, key has {key[1]}; they must be equal")
    if (key[1] == 0 and query[1] != 0) or (key[1] > 0 and query[1] % key[1] != 0):
        raise ValueError(
            f"query has {query[1]} heads, key has {key[1]}; "
            f"the query's heads must be a multiple of the key's"
        )
    if value[2] != key[2]:
        raise ValueError(f"value has {value[2]} tokens, key has {key[2]}; they must be equal")
    if key[3] != query[3]:
        raise ValueError(f"key has head_dim {key[3]}, query has {query[3]}; they must be equal")


def shown(value: object, write: Callable[[object], str] = str) -> str:
    """A caller's value in an error, as ``write`` writes it; long ones, such as 10**400, cut."""
    try:
        text = write(value)
    except ValueError:  # of Python, which writes no int of more than 4300 digits
        return f"a {type(value).__name__} of too many digits to write"
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_BEGINNING]}... ({len(text)} characters)"


_LONGEST = 100
_BEGINNING = 30


def flag(name: str, value: object) -> bool:
    """A flag: True or False, also as 1 or 0 or NumPy's.

    Raises:
        TypeError: anything else, ``"False"`` and arrays above all.
    """
    if value is True or value is False:
        return value
    if type(value).__name__ in ("bool", "bool_") or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name} is {shown(value, repr)}; expected True or False")


def default_scale(head_dim: int) -> float:
    """``1 / sqrt(head_dim)``, and 1 for an empty head."""
    return float(head_dim) ** -0.5 if head_dim else 1.0


def positive_scale(scale: float) -> tuple[float, float]:
    """``(factor, positive)`` with ``factor * positive == scale`` and factor one of 1, -1 and 0.

    cuDNN takes the maximum of a row before it scales the logits: a negative scale overflows, and
    0 gives 0 * inf (H200, cuDNN 9.19: NaN in both). The adapters multiply the query by the factor,
    which is exact, and hand on the positive scale. Kernels hold it in float32, so a magnitude below
    float32's smallest normal number counts as 0.

    Raises:
        ValueError: the scale is not finite in float32.
    """
    if not abs(scale) <= _FLOAT32_MAX:
        raise ValueError(f"scale = {shown(scale)}; expected a number that is finite in float32")
    if abs(scale) < _FLOAT32_SMALLEST:
        return 0.0, 1.0
    return (1.0, scale) if scale > 0 else (-1.0, -scale)


_FLOAT32_MAX = (2 - 2**-23) * 2.0**127
_FLOAT32_SMALLEST = 2.0**-126
