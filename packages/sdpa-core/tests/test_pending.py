from __future__ import annotations

import pytest

from sdpa_core import NoBackendError
from sdpa_core.pending import PENDING, pending_reasons, refuse_pending


class Array:
    """Compares elementwise, like the arrays of a framework."""

    shape = (2, 3)

    def __eq__(self, other: object) -> object:  # type: ignore[override]
        return Array()

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]


def test_defaults_are_accepted() -> None:
    refuse_pending("f", PENDING)
    refuse_pending("f", {"dropout_p": 0, "softmax": "vanilla", "score_mod_args": ()})


@pytest.mark.parametrize("name", PENDING)
def test_an_array_is_refused_by_name(name: str) -> None:
    with pytest.raises(NoBackendError, match=rf"{name} = an array of shape \[2, 3\]"):
        refuse_pending("f", {name: Array()})


def test_all_reasons_are_given() -> None:
    reasons = pending_reasons({"dropout_p": 0.1, "window": (4, 0), "softmax": "off_by_one"})
    assert [reason.what for reason in reasons] == ["dropout_p", "window", "softmax"]
