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


def test_none_is_accepted() -> None:
    refuse_pending("f", dict.fromkeys(PENDING))


@pytest.mark.parametrize("name", PENDING)
def test_an_array_is_refused_by_name(name: str) -> None:
    with pytest.raises(NoBackendError, match=rf"{name} = an array of shape \[2, 3\]"):
        refuse_pending("f", {name: Array()})


def test_all_reasons_are_given() -> None:
    reasons = pending_reasons({"recipe": "delayed", "other": 0.0, "unset": None})
    assert [reason.what for reason in reasons] == ["recipe", "other"]
