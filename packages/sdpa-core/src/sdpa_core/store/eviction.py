"""Keeping the user's folder below its size, by removing what was not used for longest."""

from __future__ import annotations

import time

from .folder import LOCK, Entry, Folder

#: What is removed down to, so that not every write has to remove something.
_KEPT_SHARE = 0.9
#: After so many writes of this process the folder is measured again: others write too.
_WRITES_BETWEEN_SCANS = 64


class Eviction:
    """Removes the least recently used plans of a folder once it is larger than its cap.

    Files are measured at the first write of the process and then now and then; in between, what
    the process writes is added up. One process at a time removes; one that finds another at it
    leaves it alone. A process that still uses a plan that is removed has it in memory.
    """

    def __init__(self, folder: Folder, cap: int) -> None:
        self._folder = folder
        self._cap = cap
        self._bytes: int | None = None
        self._writes = 0

    def after_write(self, size: int) -> list[Entry]:
        """Take note of a written file; what was removed.

        Raises:
            NotTrustedError, OSError: as the folder's methods.
            ImportError: the package ``filelock`` is missing.
        """
        self._writes += 1
        if self._bytes is not None and self._writes % _WRITES_BETWEEN_SCANS:
            self._bytes += size
            if self._bytes <= self._cap:
                return []
        return self.sweep()

    def sweep(self) -> list[Entry]:
        """Measure, and remove what is too much; what was removed."""
        entries, now = self._folder.entries(), time.time()
        self._bytes = sum(entry.bytes for entry in entries)
        if self._bytes <= self._cap and not any(entry.is_stale(now) for entry in entries):
            return []
        from filelock import FileLock, Timeout

        try:
            with FileLock(self._folder.path / LOCK, timeout=0, mode=0o600):
                return self._remove(now)
        except Timeout:
            return []

    def _remove(self, now: float) -> list[Entry]:
        entries = self._folder.entries()  # again: another process may just have removed
        chosen = [entry for entry in entries if entry.is_stale(now)]
        total = sum(entry.bytes for entry in entries) - sum(entry.bytes for entry in chosen)
        if total > self._cap:
            for entry in sorted((e for e in entries if e.is_plan), key=lambda entry: entry.used):
                if total <= self._cap * _KEPT_SHARE:
                    break
                chosen.append(entry)
                total -= entry.bytes
        self._bytes = total
        return [entry for entry in chosen if self._folder.delete(entry)]
