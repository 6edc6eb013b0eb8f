"""The store that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..config import Settings
from ..events import Event, tell
from . import trust
from .store import Store


class NoFolderError(Exception):
    """There is no place for a store; the text says why and what to do."""


def user_folder(settings: Settings) -> Path:
    """The user's folder: ``SDPA_CACHE_DIR``, else ``sdpa`` where the system wants caches.

    Raises:
        NoFolderError: the system has no such place.
    """
    if settings.cache_dir:
        return Path(settings.cache_dir).expanduser().absolute()
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise NoFolderError(
            f"{error}; install it with: pip install platformdirs, or set SDPA_CACHE_DIR"
        ) from error
    found = user_cache_path("sdpa", appauthor=False)
    if not found.is_absolute():  # no home: platformdirs leaves the ~ in place
        raise NoFolderError("this user has no home; set SDPA_CACHE_DIR to a folder")
    return found


def open_store(settings: Settings, count: Callable[[str], object]) -> Store | None:
    """The store of these settings; None if it is off, or cannot be kept, which is told.

    Args:
        settings: where it is, and whether.
        count: see ``Store``.
    """
    if not settings.plan_store or not trust.SUPPORTED:
        return None
    try:
        base = user_folder(settings)
    except (NoFolderError, RuntimeError) as error:  # RuntimeError: Path.expanduser without a home
        count("store bad")
        tell(Event("store bad", "", reason=f"plans are not kept on disk: {error}"))
        return None
    packs = tuple(Path(pack).expanduser().absolute() for pack in settings.plan_packs)
    return Store(base, packs, settings.cache_bytes, count)
