"""Attention of published models, from ``presets.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def presets() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """For each model, the fields of each kind of layer."""
    text = (resources.files(__package__) / "presets.toml").read_text(encoding="utf-8")
    return {name: tuple(model["attention"]) for name, model in tomllib.loads(text).items()}
