from __future__ import annotations

import pytest

from sdpa_core.config import Fallback, Settings, backends, preferred_backends, read, settings


def test_defaults() -> None:
    assert read({}) == Settings()


def test_variables() -> None:
    found = read(
        {
            "SDPA_BACKENDS": " cudnn , reference,",
            "SDPA_FALLBACK": "error",
            "SDPA_WORKSPACE_SHARE": "0.5",
            "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT": "-1",
            "UNRELATED": "1",
        }
    )
    assert found == Settings(
        ("cudnn", "reference"),
        Fallback.ERROR,
        0.5,
        (("CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT", "-1"),),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SDPA_FALLBACK", "maybe"),
        ("SDPA_WORKSPACE_SHARE", "all"),
        ("SDPA_WORKSPACE_SHARE", "0"),
        ("SDPA_WORKSPACE_SHARE", "nan"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = '{value}'"):
        read({name: value})


def test_the_context_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDPA_BACKENDS", "reference")
    settings.cache_clear()
    try:
        assert preferred_backends() == ("reference",)
        with backends("cudnn"):
            assert preferred_backends() == ("cudnn",)
            with backends("cutedsl", "cudnn"):
                assert preferred_backends() == ("cutedsl", "cudnn")
            assert preferred_backends() == ("cudnn",)
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    assert preferred_backends() == ()


def test_no_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one name"), backends():
        pass
