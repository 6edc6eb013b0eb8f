"""Fields of a file of shapes: what each may hold."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any

from ...dtypes import DType
from ...mask import Alignment
from ...softmax import Softmax
from .. import values
from ..options import LAYOUTS

Read = Callable[[Any], Any]


def count(value: Any) -> int:
    """A positive number of anything."""
    if type(value) is not int or value < 1:
        raise ValueError("expected a positive integer")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("expected true or false")
    return value


def number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("expected a number")
    return float(value)


def _text(convert: Read, example: str) -> Read:
    """A text that one of the command line's options understands."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"expected a text such as {example!r}")
        try:
            return convert(value)
        except ArgumentTypeError as error:
            raise ValueError(str(error)) from error

    return read


def _one_of(allowed: Mapping[str, Any]) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}")
        return allowed[value]

    return read


def _causal(value: Any) -> Alignment | None:
    if isinstance(value, bool):
        return Alignment.TOP_LEFT if value else None
    return _corner(value)  # type: ignore[no-any-return]


_corner = _text(values.alignment, "bottom_right")


def _packed(text: str) -> list[values.Side]:
    return [values.packed(side) for side in text.split()]


def _layout(value: Any) -> str:
    return _one_of({name: name for name in LAYOUTS})(value)  # type: ignore[no-any-return]


def _bias(value: Any) -> str:
    """Checked when its letters are replaced by the row's numbers."""
    if not isinstance(value, str):
        raise TypeError("expected a text such as '1,h,s,t' or '1,1,s,t:bool'")
    return value


#: Fields of the shapes, instead of ``q`` and ``kv``.
SIZES: Mapping[str, Read] = dict.fromkeys(
    ("batch", "heads", "heads_kv", "tokens", "tokens_kv", "head_dim"), count
)

#: All fields but ``preset``. Names and meanings are those of the options of ``explain``.
FIELDS: Mapping[str, Read] = {
    **SIZES,
    "q": _text(values.shape, "2,16,4096,128"),
    "kv": _text(values.shape, "2,4,4096,128"),
    "v_dim": count,
    "dtype": _text(values.dtype, "bf16"),
    "layout": _layout,
    "grad_layout": _layout,
    "causal": _causal,
    "window": _text(values.window, "128,0"),
    "bias": _bias,
    "bias_grad": flag,
    "alibi": flag,
    "alibi_slopes": _one_of({"h": "h", "bh": "bh"}),
    "softmax": _one_of({str(kind): kind for kind in Softmax}),
    "sink_grad": flag,
    "softcap": number,
    "dropout": number,
    "seq_lens_q": flag,
    "seq_lens_kv": flag,
    "packed": _text(_packed, "both:20000"),
    "gaps": flag,
    "page_size": count,
    "pages": count,
    "training": flag,
    "lse": flag,
    "max_logit": flag,
    "deterministic": flag,
}

#: Fields that may be ranges.
RANGES = frozenset(name for name, read in FIELDS.items() if read is count)

#: What a field is that a table does not have.
DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys((name for name, read in FIELDS.items() if read is flag), False),
    **dict.fromkeys(("v_dim", "causal", "window", "bias", "alibi_slopes", "softcap")),
    **dict.fromkeys(("page_size", "pages", "grad_layout")),
    "batch": 1,
    "dtype": DType.BFLOAT16,
    "layout": "bhsd",
    "softmax": Softmax.VANILLA,
    "dropout": 0.0,
    "packed": [],
}
