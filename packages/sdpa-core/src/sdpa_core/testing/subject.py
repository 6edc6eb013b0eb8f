"""What the conformance suite asks of an implementation of attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..reasons import Unsupported
from .cases import Case, Inputs
from .reference import Array


@dataclass(frozen=True)
class Result:
    """What a run gave, in float64 (exact for every element type) and ``[B, H, S, D]``.

    Attributes:
        output: ``[B, Hq, Sq, Dv]``.
        lse: ``[B, Hq, Sq]``; None unless asked for.
        grad_query, grad_key, grad_value: of their operands' shapes; None in inference.
        dtypes: the element type that each of these had, by its name here: ``{"lse": "float32"}``.
    """

    output: Array
    lse: Array | None = None
    grad_query: Array | None = None
    grad_key: Array | None = None
    grad_value: Array | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def arrays(self) -> dict[str, Array]:
        """Those that are there, by name."""
        named = {
            "output": self.output,
            "lse": self.lse,
            "grad_query": self.grad_query,
            "grad_key": self.grad_key,
            "grad_value": self.grad_value,
        }
        return {name: array for name, array in named.items() if array is not None}


class Subject(Protocol):
    """An implementation under test: a backend on a device, called as its users call it."""

    @property
    def name(self) -> str: ...

    def run(
        self,
        case: Case,
        inputs: Inputs,
        *,
        training: bool,
        return_lse: bool,
        deterministic: bool = False,
    ) -> Result:
        """Run attention on ``inputs`` laid out as ``case.layout`` says (see ``place``).

        Args:
            case: shapes, element type, band and scale.
            inputs: numbers of the case's element type, not always ``case.arrays()``.
            training: also run the backward pass with ``inputs.grad_output``.
            return_lse: also return the log-sum-exp.
            deterministic: ask for gradients that are bitwise equal from run to run.

        Raises:
            NoBackendError: the case is in ``refusal``; the text holds every reason.
        """
        ...

    def refusal(
        self, case: Case, *, training: bool, deterministic: bool = False
    ) -> tuple[Unsupported, ...]:
        """Why the case cannot run here; empty if it must. Known without running it."""
        ...
