"""What the bits of a place may depend on: for each axis the documented way, then others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from sdpa_core.philox import MASK32, keep_threshold

from .points import Points


def tiles(tokens: Any) -> Any:
    return (tokens + 15) // 16


def round_up(tokens: int, multiple: int) -> int:
    return -(-tokens // multiple) * multiple


HEADS: dict[str, Callable[[Points], Tensor]] = {
    "b H + h": lambda x: x.b * x.setup.heads + x.h,
    "h": lambda x: x.h,
    "h B + b": lambda x: x.h * x.setup.batch + x.b,
    "h real_B + b": lambda x: x.h * len(x.setup.real) + x.b,
    "b H + members first": lambda x: (
        x.b * x.setup.heads + x.h % x.setup.group * x.setup.heads_kv + x.h // x.setup.group
    ),
    "b Hkv + key head": lambda x: x.b * x.setup.heads_kv + x.h // x.setup.group,
}
TILES: dict[str, Callable[[Points], Any]] = {
    "declared Sq": lambda x: tiles(x.setup.sq),
    "sequence's Sq": lambda x: tiles(x.length(0)),
    "longest Sq": lambda x: tiles(max(sq for sq, _ in x.setup.real)),
    "all tokens": lambda x: tiles(x.setup.starts(0)[-1]),
    "declared Sq to 64": lambda x: tiles(round_up(x.setup.sq, 64)),
    "declared Sq to 128": lambda x: tiles(round_up(x.setup.sq, 128)),
    "sequence's Sq to 64": lambda x: tiles((x.length(0) + 63) // 64 * 64),
    "sequence's Sq to 128": lambda x: tiles((x.length(0) + 127) // 128 * 128),
    "declared Skv": lambda x: tiles(x.setup.skv),
}
ROWS: dict[str, Callable[[Points], Tensor]] = {
    "row in sequence": lambda x: x.i,
    "row in pack": lambda x: x.i + x.start(0),
    "row from the end": lambda x: x.i + x.setup.sq - x.length(0),
}
COLUMNS: dict[str, Callable[[Points], Tensor]] = {
    "column in sequence": lambda x: x.j,
    "column in pack": lambda x: x.j + x.start(1),
}
#: Of the offset and what is added to the counter: words 0 and 1, and a shift of the output words.
OFFSETS: dict[str, Callable[[int, Tensor], tuple[Any, Any, int]]] = {
    "offset / 4": lambda o, more: ((o >> 2) + more, 0, 0),
    "64 bits": lambda o, more: ((o >> 2) + more, ((o >> 2) + more) >> 32, 0),
    "high word in c1": lambda o, more: ((o >> 2) + more, o >> 34, 0),
    "offset's low word": lambda o, more: (((o & MASK32) >> 2) + more, 0, 0),
    "words": lambda o, more: ((o >> 2) + more, 0, o % 4),
    "rounded up": lambda o, more: (((o + 3) >> 2) + more, 0, 0),
    "undivided": lambda o, more: (o + more, 0, 0),
}
SEEDS: dict[str, Callable[[int], int]] = {
    "two's complement": lambda seed: seed % 2**64,
    "low word": lambda seed: seed & MASK32,
    "magnitude": abs,
}
#: 1 - p in float64 as the frontend's forward has it, and in float32 as its backward has it.
THRESHOLDS: dict[str, Callable[[float], int]] = {
    "1 - p in float64": keep_threshold,
    "1 - p in float32": lambda p: math.floor(float(np.float32(1) - np.float32(p)) * 65536),
    "rounded": lambda p: round((1 - float(np.float32(p))) * 65536),
}
AXES: dict[str, dict[str, Callable[..., Any]]] = {
    "head": HEADS,
    "tiles": TILES,
    "row": ROWS,
    "column": COLUMNS,
    "offset": OFFSETS,
    "seed": SEEDS,
    "threshold": THRESHOLDS,
}


def hypotheses(vary: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Callable[..., Any]]]]:
    """Every combination of the alternatives of some axes; the documented mapping comes first."""
    documented = {axis: next(iter(choices.values())) for axis, choices in AXES.items()}
    yield "documented", documented
    for names in itertools.product(*(AXES[axis] for axis in vary)):
        chosen = dict(zip(vary, names, strict=True))
        unusual = [name for axis, name in chosen.items() if name != next(iter(AXES[axis]))]
        if unusual:
            changes = {axis: AXES[axis][name] for axis, name in chosen.items()}
            yield ", ".join(unusual), documented | changes
