"""What is asked, in order of importance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .observations import WAYS
from .setups import Setup


@dataclass(frozen=True)
class Question:
    name: str
    setup: Setup
    ways: tuple[str, ...]
    vary: tuple[str, ...] = ("head", "tiles")
    every_plan: bool = False


BASE = Setup()
MIXED = ((200, 130), (77, 256), (256, 16), (31, 190))
THD = ((300, 300), (77, 77), (16, 16), (131, 131), (1, 1))
CROSS = ((200, 130), (77, 256), (16, 33), (131, 190), (1, 5))
PLACES = ("head", "tiles", "row", "column")
ALL = tuple(WAYS)
FORWARD = ("forward dump", "output")
SHORT = ("forward dump", "gradient")
TINY = 2.0**-16 + 2.0**-30


@dataclass
class Questions:
    """In order of importance: what does not fit into the time is left out from the end."""

    items: list[Question] = field(default_factory=list)

    def add(self, name: str, ways: tuple[str, ...] = SHORT, **changes: Any) -> None:
        vary = changes.pop("vary", ("head", "tiles"))
        every_plan = changes.pop("every_plan", False)
        self.items.append(Question(name, replace(BASE, **changes), ways, vary, every_plan))


def questions() -> list[Question]:
    ask = Questions()
    wide = {"heads": 6, "heads_kv": 2}
    ask.add("a dense", ALL, sq=208, skv=272)
    ask.add("b GQA", ALL, **wide)
    ask.add("b MQA", heads=4, heads_kv=1, sq=100)
    padded = {"batch": 4, "sq": 272, "skv": 304, "lengths": MIXED, "vary": PLACES}
    ask.add("c padding", ALL, **padded)
    packed = {"batch": 5, "sq": 336, "skv": 352, "lengths": THD, "packed": True, "vary": PLACES}
    ask.add("d THD, true batch", ALL, **packed)
    bucketed = packed | {"batch": 32, "sq": 1024, "skv": 1024}
    ask.add("d THD, batch 32 and token bucket", ALL, **bucketed)
    ask.add("d THD, cross lengths", ALL, **packed | {"lengths": CROSS})
    ask.add("d THD, GQA, causal", ALL, **packed, **wide, right=0)
    ask.add("e every plan", ALL, every_plan=True, sq=200, skv=264, d=128, vary=("tiles",))
    ask.add("e every plan, causal", every_plan=True, sq=320, skv=320, right=0, vary=("tiles",))
    ask.add("e without statistics", FORWARD, every_plan=True, stats=False)
    for offset in (1, 2, 3, 18):
        ask.add(f"f offset {offset}", ("forward dump",), offset=offset, vary=("offset",))
    for name, offset in (
        *(("2^32", 2**32), ("2^32 + 16", 2**32 + 16), ("2^34 - 16", 2**34 - 16)),
        *(("2^34 + 16", 2**34 + 16), ("2^40 + 16", 2**40 + 16)),
    ):
        ask.add(f"f offset {name}", ("forward dump",), offset=offset, vary=("offset",))
    for seed in (-1, -(2**40) - 12345, 2**31 + 5, 2**63 - 1):
        ask.add(f"f seed {seed}", seed=seed, vary=("seed",))
    ask.add("g 128 heads", batch=4, heads=32, heads_kv=32, sq=512, skv=320, d=128)
    ask.add("g Sq 4608", batch=1, sq=4608, skv=320, d=128)
    ask.add("g Skv 4608", batch=1, sq=320, skv=4608, d=128)
    ask.add("g D 256", d=256)
    ask.add("g fp16, D 128", d=128, dtype=torch.float16, sq=200, skv=100)
    ask.add("g D 32, p 0.1", d=32, p=0.1)
    ask.add("h bias", bias=True)
    ask.add("h bias, causal", bias=True, right=0)
    ask.add("h causal", right=0)
    ask.add("h sliding window", left=65, right=0)
    ask.add("h padding, causal", **padded, right=0)
    ask.add("i deterministic", ("gradient", "backward dump"), deterministic=True)
    ask.add("i deterministic, THD", ("gradient",), deterministic=True, **packed)
    for p in (TINY, 0.25 + 2.0**-25):
        big = {"sq": 1024, "skv": 1024, "heads": 4, "heads_kv": 4, "vary": ("threshold",)}
        ask.add(f"j threshold of p = {p!r}", p=p, **big)
    return ask.items
