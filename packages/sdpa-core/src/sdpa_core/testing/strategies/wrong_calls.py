"""Calls in which one thing is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from ...tensor import TensorSpec
from .common import Draw
from .right_calls import RIGHT_CALLS, dense
from .wrong_values import CONTRADICTIONS, WRONG


@dataclass(frozen=True)
class WrongCall:
    """A call of a public function in which one thing is wrong.

    Attributes:
        function: ``dense``, ``varlen`` or ``paged``.
        arguments: by the names of ``sdpa_torch``; arrays, whose contents are zeros, as specs. Dense
            operands are ``[B, H, S, D]``.
        wrong: names of arguments, one of which the error must say.
        elsewhere: the argument that lies on another device.
    """

    function: str
    arguments: Mapping[str, Any] = field(repr=False)
    wrong: tuple[str, ...]
    elsewhere: str | None = None

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        where = f", {self.elsewhere} elsewhere" if self.elsewhere else ""
        return f"{self.function}({given}){where}"


@st.composite
def wrong_calls(draw: Draw[Any], *, devices: bool = False) -> WrongCall:
    """A right call, with some of its harmless options changed, in which one thing is wrong.

    Args:
        devices: arrays may also lie on different devices.
    """
    function = draw(st.sampled_from(tuple(RIGHT_CALLS)))
    arguments = {**RIGHT_CALLS[function], **draw(_harmless())}
    kinds = ["value", "value", "together", *["elsewhere"] * devices]
    match draw(st.sampled_from(kinds)):
        case "value":
            extra = ("value_page_table",) if function == "paged" else ()
            names = [name for name in (*arguments, *extra) if name in WRONG]
            name = draw(st.sampled_from(names))
            arguments[name] = draw(st.sampled_from(WRONG[name]))
            return WrongCall(function, arguments, (name,))
        case "together":
            fitting = [pair for pair in CONTRADICTIONS if function in pair[0]]
            _, changed, wrong = draw(st.sampled_from(fitting))
            return WrongCall(function, arguments | changed, wrong)
        case _:
            arrays = [name for name, value in arguments.items() if isinstance(value, TensorSpec)]
            name = draw(st.sampled_from([name for name in arrays if name != "query"]))
            return WrongCall(function, arguments, (name,), elsewhere=name)


@st.composite
def _harmless(draw: Draw[Any]) -> dict[str, Any]:
    return {
        "scale": draw(st.sampled_from((None, 0.5, -1.0, 0.0))),
        "softcap": draw(st.sampled_from((None, 20.0))),
        "alibi": draw(st.sampled_from((False, True, dense(4)))),
        "return_lse": draw(st.booleans()),
        "deterministic": draw(st.sampled_from((None, True))),
    }
