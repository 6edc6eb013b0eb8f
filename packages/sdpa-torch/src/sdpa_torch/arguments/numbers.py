"""Numbers and flags."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch

from sdpa_core import default_scale, flag


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
        raise ValueError(f"softcap = {softcap}; expected a positive finite number")
    return bound


def dropout_of(dropout_p: Any) -> float:
    probability = number("dropout_p", dropout_p)
    if not 0.0 <= probability < 1.0:
        raise ValueError(f"dropout_p = {dropout_p}; expected 0 <= dropout_p < 1")
    return probability


def number(name: str, given: Any) -> float:
    """A real number as a float.

    Raises:
        TypeError: it is none, but a tensor, say.
        ValueError: it is too large for a float.
    """
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"{name} is a {type(given).__name__}; expected a number")
    try:
        return float(given)
    except OverflowError:
        raise ValueError(f"{name} = {given}; expected a finite number") from None


def count(name: str, given: Any) -> int:
    """A number of tokens that is known on the host."""
    if isinstance(given, bool) or not isinstance(given, int | torch.SymInt):
        raise TypeError(f"{name} is a {type(given).__name__}; expected an int, in tokens")
    if given < 0:
        raise ValueError(f"{name} = {given}; expected at least 0 tokens")
    return given  # type: ignore[return-value]


def float32(name: str, given: Any) -> float:
    """A number that is finite in float32."""
    value = number(name, given)
    if not math.isfinite(value) or abs(value) >= 2.0**128:
        raise ValueError(f"{name} = {given}; expected a number that is finite in float32")
    return value
