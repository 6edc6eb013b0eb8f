"""What a part reports: figures with their targets, samples, and what went wrong."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

_RELATIONS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True)
class Target:
    """What a figure should be; reported, never enforced."""

    relation: Literal["<=", "<", ">=", "=="]
    value: float

    def met(self, value: float) -> bool:
        return bool(_RELATIONS[self.relation](value, self.value))


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    Attributes:
        name: what it is.
        value: a ratio, or a number in ``unit``.
        unit: ``x`` for a ratio.
        of: the two measured values that a ratio is made of, in words.
        target: what it should be, if anything is promised.
    """

    name: str
    value: float
    unit: str = "x"
    of: str = ""
    target: Target | None = None

    def line(self, part: str) -> list[str]:
        """Part, name, value, target, whether it is met, what it is made of."""
        wanted = met = "-"
        if self.target is not None:
            wanted = f"{self.target.relation} {_number(self.target.value, self.unit)}"
            met = "yes" if self.target.met(self.value) else "no"
        return [part, self.name, _number(self.value, self.unit), wanted, met, self.of]


HEAD = ["part", "figure", "value", "target", "met", "of"]


def _number(value: float, unit: str) -> str:
    text = f"{value:.0f}" if float(value).is_integer() and unit not in "x%" else f"{value:.2f}"
    return f"{text} {unit}" if unit.isalpha() and unit != "x" else f"{text}{unit}"


@dataclass(frozen=True)
class Report:
    """The result of a part.

    Attributes:
        figures: for the table.
        data: every sample, for the file.
        faults: what must not be: a wrong result, a measurement of something else than it says.
    """

    figures: tuple[Figure, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Report:
        return cls(
            tuple(_figure(figure) for figure in saved["figures"]),
            saved["data"],
            tuple(saved["faults"]),
        )


def _figure(saved: Mapping[str, Any]) -> Figure:
    target = saved["target"]
    return Figure(**{**saved, "target": Target(**target) if target else None})


class CannotRunError(Exception):
    """A part cannot run here; the text says why."""


def microseconds(milliseconds: float) -> str:
    return f"{milliseconds * 1e3:.2f} us"
