"""What the conformance suite asks of an implementation of attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..reasons import Unsupported
from .case import Case, Inputs
from .logits import Array


class DropoutState(NamedTuple):
    """What the implementation's dropout was computed from.

    Attributes:
        seed: in ``[0, 2^64)``, or the negative number that an int64 buffer shows.
        offset: a multiple of 4.
        tokens_q: query tokens that the generator counted with; None: the case's.
    """

    seed: int
    offset: int = 0
    tokens_q: int | None = None


@dataclass(frozen=True)
class Result:
    """What a run gave, in float64 (exact for every element type).

    Everything is padded, ``[B, H, S, D]``: packed results are unpacked by ``Packing.unpack``, with
    0 for tokens that do not exist, and -inf in the log-sum-exp.

    Attributes:
        output: ``[B, Hq, Sq, Dv]``.
        lse: ``[B, Hq, Sq]``; None unless asked for.
        grad_query, grad_key, grad_value: of their operands' shapes; None in inference.
        dtypes: the element type that each of these had, by its name here: ``{"lse": "float32"}``.
        max_logit: ``[Hq]``; None unless asked for.
        grad_bias: of the bias's shape; None unless the case asks for it.
        grad_sink: ``[Hq]``; None in inference, and without a sink.
        dropout: what the decisions were computed from; None without dropout.
        gaps: of packed results, the rows that belong to no sequence (``Packing.gap_rows``), by the
            result's name.
    """

    output: Array
    lse: Array | None = None
    grad_query: Array | None = None
    grad_key: Array | None = None
    grad_value: Array | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    max_logit: Array | None = None
    grad_bias: Array | None = None
    grad_sink: Array | None = None
    dropout: DropoutState | None = None
    gaps: Mapping[str, Array] = field(default_factory=dict)

    def arrays(self) -> dict[str, Array]:
        """Those that are there, by name."""
        named = {
            "output": self.output,
            "lse": self.lse,
            "max_logit": self.max_logit,
            "grad_query": self.grad_query,
            "grad_key": self.grad_key,
            "grad_value": self.grad_value,
            "grad_bias": self.grad_bias,
            "grad_sink": self.grad_sink,
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
        return_max_logit: bool = False,
        deterministic: bool = False,
    ) -> Result:
        """Run attention on ``inputs`` laid out as the case says (see ``placement``).

        With dropout, equal calls must use equal seeds: the suite compares their bits.

        Args:
            case: shapes, element types and features.
            inputs: numbers of the case's element types, not always ``case.arrays()``.
            training: also run the backward pass with ``inputs.grad_output``, for all gradients
                that the case asks for.
            return_lse: also return the log-sum-exp.
            return_max_logit: also return the largest logit of each head.
            deterministic: ask for gradients that are bitwise equal from run to run.

        Raises:
            NoBackendError: the case is in ``refusal``; the text holds every reason.
        """
        ...

    def refusal(
        self,
        case: Case,
        *,
        training: bool,
        return_lse: bool = False,
        return_max_logit: bool = False,
        deterministic: bool = False,
    ) -> tuple[Unsupported, ...]:
        """Why the case cannot run here; empty if it must. Known without running it."""
        ...
