"""Values of options, from text."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import dataclass

from ..dtypes import DType
from ..mask import Alignment
from ..validate import shown

#: Lengths, positions and cumulative lengths are int32.
MOST = 2**31 - 1

#: NVIDIA's, times 10, of CUDA 12 and 13.
COMPUTE_CAPABILITIES = (
    *(50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89),
    *(90, 100, 101, 103, 110, 120, 121),
)

#: Short names of element types.
ABBREVIATIONS = {
    "bf16": DType.BFLOAT16,
    "fp16": DType.FLOAT16,
    "f16": DType.FLOAT16,
    "fp32": DType.FLOAT32,
    "f32": DType.FLOAT32,
    "fp64": DType.FLOAT64,
    "f64": DType.FLOAT64,
}


def dtype(text: str) -> DType:
    """``bfloat16``, or ``bf16``."""
    try:
        return ABBREVIATIONS.get(text) or DType(text)
    except ValueError:
        allowed = ", ".join((*DType, *ABBREVIATIONS))
        raise ArgumentTypeError(f"{text!r} is no dtype; expected one of {allowed}") from None


def shape(text: str) -> tuple[int, ...]:
    """Lengths of axes: ``2,16,4096,128``."""
    parts = text.split(",")
    if not all(_is_length(part.strip()) for part in parts):
        raise ArgumentTypeError(
            f"{shown(text, repr)} is no shape; expected lengths such as 2,16,4096,128"
            f"{_bound(*parts)}"
        )
    return tuple(int(part) for part in parts)


def length(text: str) -> int:
    """A number of tokens, heads or elements, 0 or more."""
    if not _is_length(text):
        raise ArgumentTypeError(f"{shown(text, repr)}; expected 0 or more{_bound(text)}")
    return int(text)


def count(text: str) -> int:
    """A positive number."""
    if not _is_length(text) or int(text) == 0:
        raise ArgumentTypeError(f"{shown(text, repr)}; expected a positive integer{_bound(text)}")
    return int(text)


def _is_length(text: str) -> bool:
    return text.isdecimal() and len(text) <= len(str(MOST)) and int(text) <= MOST


def _bound(*texts: str) -> str:
    """What is expected besides, where a number among these is too large."""
    large = any(text.strip().isdecimal() and not _is_length(text.strip()) for text in texts)
    return f", at most {MOST}" if large else ""


def compute_capability(text: str) -> int:
    """``90`` for 9.0."""
    if not _is_length(text) or int(text) not in COMPUTE_CAPABILITIES:
        allowed = ", ".join(map(str, COMPUTE_CAPABILITIES))
        raise ArgumentTypeError(
            f"{shown(text, repr)} is no compute capability known here; expected one of {allowed}"
        )
    return int(text)


def version(text: str) -> int:
    """A cuDNN version, ``9.19`` or ``9.19.2``, as ``cudnnGetVersion()`` counts: 91902."""
    parts = text.split(".")
    known = 2 <= len(parts) <= 3 and all(part.isdecimal() and len(part) <= 2 for part in parts)
    if not known:
        raise ArgumentTypeError(f"{text!r} is no version; expected for instance 9.19 or 9.19.2")
    major, minor, patch = (*(int(part) for part in parts), 0)[:3]
    return major * 10000 + minor * 100 + patch


@dataclass(frozen=True, slots=True)
class Bias:
    """Of ``--bias``: the dtype is None where it is the query's."""

    shape: tuple[int, ...]
    dtype: DType | None


def bias(text: str) -> Bias:
    """``1,16,4096,4096`` or ``1,1,4096,4096:bool``."""
    lengths, _, kind = text.partition(":")
    return Bias(shape(lengths), dtype(kind) if kind else None)


@dataclass(frozen=True, slots=True)
class Window:
    """Of ``--window``: bounds in tokens, None if there is none, and the corner if it was given."""

    left: int | None
    right: int | None
    alignment: Alignment | None


def window(text: str) -> Window:
    """``128,0``, ``128,inf`` or ``128,0:bottom_right``."""
    bounds, _, corner = text.partition(":")
    parts = [part.strip() for part in bounds.split(",")]
    if len(parts) != 2 or not all(part == "inf" or _is_length(part) for part in parts):
        raise ArgumentTypeError(
            f"{shown(text, repr)} is no window; expected two numbers of tokens such as 128,0 or "
            f"128,inf{_bound(*parts)}"
        )
    left, right = (None if part == "inf" else int(part) for part in parts)
    return Window(left, right, alignment(corner) if corner else None)


def alignment(text: str) -> Alignment:
    """A corner."""
    try:
        return Alignment(text)
    except ValueError:
        allowed = " or ".join(Alignment)
        raise ArgumentTypeError(f"{text!r}; expected {allowed}") from None


@dataclass(frozen=True, slots=True)
class Side:
    """Of ``--packed``: which side, and its rows; None for the batch times the tokens."""

    names: tuple[str, ...]
    tokens: int | None


def packed(text: str) -> Side:
    """``q``, ``kv`` or ``both``, with the rows of the packed tensor: ``kv:20000``."""
    side, colon, rows = text.partition(":")
    names = {"q": ("q",), "kv": ("kv",), "both": ("q", "kv")}.get(side)
    if names is None or (colon and not _is_length(rows)):
        raise ArgumentTypeError(
            f"{shown(text, repr)}; expected q, kv or both, or with rows: kv:20000{_bound(rows)}"
        )
    return Side(names, int(rows) if colon else None)
