"""Settings. The only module that reads environment variables (docs/environment-variables.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Fallback(StrEnum):
    """What to do on an accelerator when only the slow reference backend supports a problem."""

    WARN = "warn"
    ERROR = "error"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Settings:
    """Process-wide settings.

    Attributes:
        backends: names in order of preference, from ``SDPA_BACKENDS`` (comma separated); empty
            means the default order.
        fallback: from ``SDPA_FALLBACK``.
        workspace_share: largest share of device memory that one plan may use as workspace, from
            ``SDPA_WORKSPACE_SHARE``. cuDNN's workspace can grow with the square of the sequence
            length (deterministic backward on Hopper: 2 GB at B 2, H 8, S 8192).
        log: what is written to stderr, from ``SDPA_LOG`` (comma separated): ``plans``.
        plan_store: whether plans are kept on disk, from ``SDPA_PLAN_STORE`` (``on``, ``off``).
        cache_dir: the folder of the store, from ``SDPA_CACHE_DIR``; empty means ``sdpa`` in the
            user's folder for caches.
        cache_bytes: size of the store beyond which plans are removed, from ``SDPA_CACHE_BYTES``.
        plan_packs: read-only folders of plans, from ``SDPA_PLAN_PACKS`` (separated like ``PATH``).
    """

    backends: tuple[str, ...] = ()
    fallback: Fallback = Fallback.WARN
    workspace_share: float = 0.25
    log: tuple[str, ...] = ()
    plan_store: bool = True
    cache_dir: str = ""
    cache_bytes: int = 1 << 30
    plan_packs: tuple[str, ...] = ()


#: What ``SDPA_LOG`` may name.
LOG_TOPICS = frozenset(("plans",))

#: Variables that change which kernels cuDNN may choose, or how they are built.
PLAN_VARIABLES = (
    "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT",
    "CUDNN_FRONTEND_ENABLE_FROST_ENGINES",
    "NVIDIA_TF32_OVERRIDE",
)


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from these variables; a bad value is an error that names the variable."""
    return Settings(
        backends=_names(environ.get("SDPA_BACKENDS", "")),
        fallback=_fallback(environ.get("SDPA_FALLBACK", Fallback.WARN)),
        workspace_share=_share(environ.get("SDPA_WORKSPACE_SHARE", "0.25")),
        log=_log(environ.get("SDPA_LOG", "")),
        plan_store=_switch("SDPA_PLAN_STORE", environ.get("SDPA_PLAN_STORE", "on")),
        cache_dir=environ.get("SDPA_CACHE_DIR", ""),
        cache_bytes=_bytes("SDPA_CACHE_BYTES", environ.get("SDPA_CACHE_BYTES", str(1 << 30))),
        plan_packs=_folders(environ.get("SDPA_PLAN_PACKS", "")),
    )


def plan_environment() -> tuple[tuple[str, str], ...]:
    """Variables of cuDNN and its frontend that change plans, as they are now.

    Part of every plan's key. Read each time, because cuDNN reads them each time.
    """
    return tuple((name, os.environ[name]) for name in PLAN_VARIABLES if os.environ.get(name))


def _names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _log(value: str) -> tuple[str, ...]:
    topics = _names(value)
    if not LOG_TOPICS.issuperset(topics):
        allowed = ", ".join(sorted(LOG_TOPICS))
        raise ValueError(f"SDPA_LOG = {value!r}; expected names among {allowed}")
    return topics


def _fallback(value: str) -> Fallback:
    try:
        return Fallback(value)
    except ValueError:
        allowed = ", ".join(Fallback)
        raise ValueError(f"SDPA_FALLBACK = {value!r}; expected one of {allowed}") from None


def _share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise ValueError(f"SDPA_WORKSPACE_SHARE = {value!r}; expected a number in (0, 1]")
    return share


def _switch(name: str, value: str) -> bool:
    if value not in ("on", "off"):
        raise ValueError(f"{name} = {value!r}; expected on or off")
    return value == "on"


def _bytes(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise ValueError(f"{name} = {value!r}; expected a number of bytes")
    return int(value)


def _folders(value: str) -> tuple[str, ...]:
    return tuple(folder for folder in value.split(os.pathsep) if folder)


@cache
def settings() -> Settings:
    """The process's settings, read once. ``settings.cache_clear()`` reads them again."""
    return read(os.environ)


_preferred: ContextVar[tuple[str, ...]] = ContextVar("sdpa_backends", default=())


@contextmanager
def backends(*names: str) -> Iterator[None]:
    """Use only these backends, in this order, inside a ``with`` block (per thread or task)."""
    if not names:
        raise ValueError("backends() needs at least one name")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"backends() takes names, got {name!r}")
    token = _preferred.set(names)
    try:
        yield
    finally:
        _preferred.reset(token)


def preferred_backends() -> tuple[str, ...]:
    """Names chosen by the context manager, else by the environment, else ()."""
    return _preferred.get() or settings().backends
