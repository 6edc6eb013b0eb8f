"""Why a backend cannot run a problem, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What is known of a backend's ability to run a problem."""

    REFUSED = "refused"
    SUPPORTED = "supported"
    NOT_ASKED = "not asked"


class Tier(StrEnum):
    """Who gave the verdict: our rules, or the library that would run it."""

    RULES = "rules"
    PROBE = "probe"


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One reason, in terms the caller can see.

    Attributes:
        what: the expression to look at, ``query.shape[-1]``.
        got: its value.
        need: what the backend needs, ``a multiple of 8``.
        hint: what to change, if there is something simple.
    """

    what: str
    got: object
    need: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.what} = {self.got}, needs {self.need}"
        return f"{text} ({self.hint})" if self.hint else text
