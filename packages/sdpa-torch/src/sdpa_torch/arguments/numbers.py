"""Numbers and flags."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import torch

from sdpa_core import default_scale, flag
from sdpa_core.validate import shown


def is_deterministic(deterministic: bool | None) -> bool:
    if deterministic is None:
        return torch.are_deterministic_algorithms_enabled()
    return flag("deterministic", deterministic)


def backend_of(backend: Any) -> str | None:
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend is {backend!r}; expected a name or None")
    return backend


def scale_of(scale: Any, head_dim: int) -> float:
    """The scale as a float: ``1 / sqrt(head_dim)`` if None."""
    if scale is None:
        return default_scale(head_dim)
    return number("scale", scale)


def softcap_of(softcap: Any) -> float | None:
    """The bound of the logits: positive and finite in float32."""
    if softcap is None:
        return None
    bound = number("softcap", softcap)
    if not 2.0**-126 <= bound < 2.0**128:
        raise ValueError(f"softcap = {shown(softcap)}; expected a positive finite number")
    return bound


def dropout_of(dropout_p: Any) -> float:
    probability = number("dropout_p", dropout_p)
    if not 0.0 <= probability < 1.0:
        raise ValueError(f"dropout_p = {shown(dropout_p)}; expected 0 <= dropout_p < 1")
    return probability


def number(name: str, given: Any, expected: str = "a number") -> float:
    """A real number, of Python or NumPy, as a float.

    Raises:
        TypeError: it is none, but a tensor, say, which would wait for its device.
        ValueError: it is too large for a float.
    """
    if not isinstance(given, Real) and _is_scalar(given):
        given = given.item()
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"{name} is a {type(given).__name__}; expected {expected}")
    try:
        return float(given)
    except OverflowError:
        raise ValueError(f"{name} = {shown(given)}; expected a finite number") from None


def _is_scalar(given: Any) -> bool:
    """NumPy's arrays without axes, and its scalars of types that Python lacks."""
    return getattr(given, "ndim", None) == 0 and not isinstance(given, torch.Tensor)


def count(name: str, given: Any, expected: str = "an int, in tokens") -> int:
    """A number of tokens that is known on the host: an int, of Python or NumPy."""
    found = _int(given)
    if found is None:
        raise TypeError(f"{name} is a {type(given).__name__}; expected {expected}")
    if found < 0:
        raise ValueError(f"{name} = {shown(given)}; expected at least 0 tokens")
    return found


def _int(given: Any) -> int | None:
    """An int; None if it is none. Tensors, which would wait for their device, are none."""
    if isinstance(given, bool | torch.Tensor):
        return None
    if isinstance(given, int | torch.SymInt):
        return given  # type: ignore[return-value]
    try:
        return operator.index(given)
    except TypeError:
        return None


def float32(name: str, given: Any, expected: str = "a number") -> float:
    """A number that is finite in float32."""
    value = number(name, given, expected)
    if not math.isfinite(value) or abs(value) >= 2.0**128:
        raise ValueError(f"{name} = {shown(given)}; expected a number that is finite in float32")
    return value
