from __future__ import annotations

import pytest

from sdpa_core.config import (
    Fallback,
    Settings,
    backends,
    plan_environment,
    preferred_backends,
    read,
    settings,
)


def test_defaults() -> None:
    assert read({}) == Settings()


def test_variables() -> None:
    found = read(
        {
            "SDPA_BACKENDS": " cudnn , reference,",
            "SDPA_FALLBACK": "error",
            "SDPA_WORKSPACE_SHARE": "0.5",
            "SDPA_LOG": "plans",
            "UNRELATED": "1",
        }
    )
    assert found == Settings(("cudnn", "reference"), Fallback.ERROR, 0.5, ("plans",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SDPA_FALLBACK", "maybe"),
        ("SDPA_WORKSPACE_SHARE", "all"),
        ("SDPA_WORKSPACE_SHARE", "0"),
        ("SDPA_WORKSPACE_SHARE", "nan"),
        ("SDPA_LOG", "plans,kernels"),
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


def test_variables_that_change_plans_are_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT"
    monkeypatch.delenv(name, raising=False)
    assert name not in dict(plan_environment())
    monkeypatch.setenv(name, "-1")
    assert dict(plan_environment())[name] == "-1"


def test_names_are_texts() -> None:
    with pytest.raises(TypeError, match=r"takes names, got \['cudnn'\]"), backends(["cudnn"]):  # type: ignore[arg-type]
        pass


def test_no_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one name"), backends():
        pass
