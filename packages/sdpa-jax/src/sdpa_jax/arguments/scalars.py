"""Numbers and windows, which are known while a program is traced."""

from __future__ import annotations

import math
import numbers

import jax
import numpy as np

from sdpa_core import Alignment, Band, flag
from sdpa_core.validate import shown


def number(name: str, given: object, expected: str = "a concrete number") -> float:
    """A number that is known while tracing: plans and caches are made for its value.

    Raises:
        TypeError, ValueError: it is none, or does not fit a float.
    """
    if isinstance(given, jax.core.Tracer):
        raise TypeError(
            f"{name} is traced; expected a concrete number. Name it in static_argnames of jax.jit, "
            f"or multiply the query by it"
            if name == "scale"
            else f"{name} is traced; expected a concrete number. Name it in static_argnames of "
            f"jax.jit"
        )
    if isinstance(given, jax.Array | np.ndarray | np.generic) and np.ndim(given) == 0:
        given = given.item()
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise TypeError(f"{name} is a {type(given).__name__}; expected {expected}")
    try:
        return float(given)
    except OverflowError:
        raise ValueError(f"{name} = {shown(given)}; expected a finite number") from None


def float32(name: str, given: object, expected: str = "a concrete number") -> float:
    """A concrete number that is finite in float32, the type that kernels are given.

    Raises:
        TypeError, ValueError: it is none.
    """
    value = number(name, given, expected)
    if not math.isfinite(value) or abs(value) >= 2.0**128:
        raise ValueError(f"{name} = {shown(given)}; expected a number that is finite in float32")
    return value


def softcap(given: object) -> float | None:
    """The bound of the logits: positive and finite in float32.

    Raises:
        TypeError, ValueError: not a positive finite number.
    """
    if given is None:
        return None
    cap = number("softcap", given)
    if not 2.0**-126 <= cap < 2.0**128:
        raise ValueError(f"softcap = {cap}; expected a positive finite number")
    return cap


def count(name: str, given: object, expected: str = "an int, in tokens") -> int:
    """A number of tokens, at least 0, known while tracing: an int, of Python, NumPy or JAX.

    Raises:
        TypeError, ValueError: it is none.
    """
    if isinstance(given, jax.core.Tracer):
        raise TypeError(f"{name} is traced; expected a concrete int, for which plans are made")
    if isinstance(given, jax.Array | np.ndarray | np.generic) and np.ndim(given) == 0:
        given = given.item()
    if isinstance(given, bool) or not isinstance(given, numbers.Integral):
        raise TypeError(f"{name} is a {type(given).__name__}; expected {expected}")
    if given < 0:
        raise ValueError(f"{name} = {shown(given)}; expected at least 0 tokens")
    return int(given)


def band(
    is_causal: object,
    alignment: object,
    window: object,
    window_name: str = "window",
) -> Band:
    """Which keys a query sees.

    Args:
        is_causal, alignment: the arguments ``is_causal`` and ``causal_alignment``.
        window: ``(left, right)`` in tokens, each may be None; or None.
        window_name: the window's argument, for errors.

    Raises:
        TypeError, ValueError: an argument is wrong, or window and causality contradict each other.
    """
    causal = flag("is_causal", is_causal)
    if not isinstance(alignment, str) or alignment not in list(Alignment):
        allowed = ", ".join(Alignment)
        raise ValueError(f"causal_alignment = {alignment!r}; expected one of {allowed}")
    left, right = _window(window_name, window)
    if causal:
        if right not in (None, 0):
            raise ValueError(
                f"{window_name} = {shown(window, repr)} sees keys to the right, and is_causal=True "
                f"hides them; expected None or 0 on the right"
            )
        right = 0
    return Band(left, right, Alignment(alignment))


def local_window(given: object, is_causal: bool) -> object:
    """The window of ``jax.nn``'s argument ``local_window_size``.

    One number counts on both sides; with ``is_causal`` nothing is seen on the right.

    Raises:
        TypeError, ValueError: neither a number of tokens nor a pair.
    """
    if given is None:
        return None
    name = "local_window_size"
    if isinstance(given, tuple | list):
        left, right = _window(name, given)
    else:
        left = right = count(name, given, "an int, in tokens, a pair of such, or None")
    return left, 0 if is_causal else right


def _window(name: str, given: object) -> tuple[int | None, int | None]:
    if given is None:
        return None, None
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(
            f"{name} is {shown(given, repr)}; expected a pair (left, right), in tokens, or None"
        )
    left, right = (
        None if bound is None else count(f"{name}[{i}]", bound, "an int, in tokens, or None")
        for i, bound in enumerate(given)
    )
    return left, right
