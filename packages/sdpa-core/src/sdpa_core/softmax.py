"""What the softmax divides by."""

from __future__ import annotations

from enum import StrEnum


class Softmax(StrEnum):
    """What the denominator of the softmax holds besides the visible keys."""

    VANILLA = "vanilla"
    #: One: a logit of 0 that has no value.
    OFF_BY_ONE = "off_by_one"
    #: ``exp(sink)``, a number for each head that the caller gives.
    LEARNABLE = "learnable"
