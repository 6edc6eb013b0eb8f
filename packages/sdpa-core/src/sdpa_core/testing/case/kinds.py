"""The words that describe a case's data and how it lies in memory."""

from __future__ import annotations

from typing import Literal

#: How query, key and value lie in memory.
#: ``bhsd``: row-major. ``bshd``, ``sbhd``: row-major in that order of axes. ``packed_qkv``,
#: ``qkv_h3d``: three views of one ``[B, S, 3, H, D]`` or ``[B, S, H, 3, D]``. ``kv_packed``,
#: ``kv_h2d``: key and value are two views of one ``[B, S, 2, H, D]`` or ``[B, S, H, 2, D]``.
#: ``unaligned``: row-major, one element past an aligned address. ``odd_rows``: ``[B, S, H, D]``
#: with one unused element after each token. ``expanded_kv``: key and value have one head in memory,
#: repeated with stride 0. Of packed sequences, the same without B, and ``bhsd`` is ``[T, H, D]``.
Layout = Literal[
    "bhsd",
    "bshd",
    "sbhd",
    "packed_qkv",
    "qkv_h3d",
    "kv_packed",
    "kv_h2d",
    "unaligned",
    "odd_rows",
    "expanded_kv",
]

#: What the logits look like.
#: ``normal``: normal deviates. ``very_negative``: all about -120, so that each LSE is below -88.7
#: and ``exp(-LSE)`` overflows in float32. ``large_positive``: all about 120, so that ``exp(S)``
#: does. ``zero_query``: all 0, so that the output is the mean of the visible values.
Logits = Literal["normal", "very_negative", "large_positive", "zero_query"]

#: Which axes of ``[B, Hq, Sq, Skv]`` a bias or mask has: 1 stands for a repeated one.
Axes = Literal["bhss", "1hss", "b1ss", "11ss", "111s", "b11s", "bh1s", "1h1s"]

#: What a bias holds. ``normal``: normal deviates. ``hides``: also -inf, in some rows everywhere.
#: ``lowest``: also the type's lowest finite number, in some rows everywhere. ``very_negative``:
#: about -120.
BiasValues = Literal["normal", "hides", "lowest", "very_negative"]

#: Size of the logits that are not normal.
LARGE_LOGIT = 120.0

#: How a bias lies in memory. ``dense``: row-major. ``transposed``: keys outermost of the last two
#: axes. ``padded_rows``: row-major, with 8 unused elements after each row.
BiasLayout = Literal["dense", "transposed", "padded_rows"]
