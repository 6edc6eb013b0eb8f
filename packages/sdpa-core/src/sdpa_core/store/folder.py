"""The user's folder of plans: ``plans-v1/<two digits>/<fingerprint>.plan``."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from . import trust
from .frame import STORE_FORMAT
from .trust import File

SUFFIX = ".plan"
TEMPORARY = ".tmp"
LOCK = ".lock"

#: Reading a plan marks it as used at most once in so many seconds.
FRESH_FOR = 3600.0
#: A process that died while writing leaves a temporary file; none takes so many seconds to write.
STALE_AFTER = 3600.0

#: File systems without hard links answer with one of these.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in the folder, as far as the folder knows it.

    Attributes:
        shelf: the folder it lies in, two hexadecimal digits.
        name: its name there.
        bytes: its size.
        used: when it was last used, in seconds since the epoch.
    """

    shelf: str
    name: str
    bytes: int
    used: float

    @property
    def is_plan(self) -> bool:
        return self.name.endswith(SUFFIX)

    @property
    def key(self) -> str:
        return self.name.removesuffix(SUFFIX)

    def is_stale(self, now: float) -> bool:
        """Whether it is what a process that died has left."""
        return self.name.endswith(TEMPORARY) and now - self.used > STALE_AFTER


class Folder:
    """Files by fingerprint, in a folder that only this user can write to.

    Whoever writes a file first wins; files appear whole or not at all and are never changed, so
    any number of processes can read and write at once. Nothing here knows what is in them.

    Raises, all methods: ``NotTrustedError`` if a folder or file must not be used, ``OSError`` if
    the system refuses.

    Attributes:
        path: of the folder; made when it is first written to, for this user alone.
    """

    def __init__(self, base: Path) -> None:
        self.path = base / f"plans-v{STORE_FORMAT}"

    def path_of(self, key: str) -> Path:
        return self.path / key[:2] / (key + SUFFIX)

    def read(self, key: str) -> File | None:
        """The file of a key, which counts as used now; None if there is none."""
        try:
            with self._shelf(key[:2]) as shelf:
                return trust.read_file(key + SUFFIX, shelf, FRESH_FOR)
        except FileNotFoundError:
            return None

    def write(self, key: str, data: bytes) -> bool:
        """Keep a file on disk; False if there already is one of this key, which stays."""
        self._make(key[:2])
        with self._shelf(key[:2]) as shelf:
            temporary = f".{key[:16]}.{os.getpid()}.{secrets.token_hex(8)}{TEMPORARY}"
            try:
                _write_new(temporary, data, shelf)
                return _move(temporary, key + SUFFIX, shelf)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=shelf)

    def remove(self, key: str, identity: tuple[int, int]) -> bool:
        """Remove the file of a key if it is the one that was read; whether it was."""
        name = key + SUFFIX
        with suppress(FileNotFoundError), self._shelf(key[:2]) as shelf:
            found = os.stat(name, dir_fd=shelf, follow_symlinks=False)
            if (found.st_dev, found.st_ino) == identity:
                os.unlink(name, dir_fd=shelf)
                return True
        return False

    def entries(self) -> list[Entry]:
        """All plans and temporary files; empty if there is no folder."""
        with suppress(FileNotFoundError), trust.opened_folder(self.path) as top:
            shelves = (self.path / name for name in _names(top) if len(name) == 2)
            return [entry for shelf in shelves for entry in _on_shelf(shelf, top)]
        return []

    def delete(self, entry: Entry) -> bool:
        """Remove a file if it is still there; whether it was."""
        with suppress(FileNotFoundError), self._shelf(entry.shelf) as shelf:
            os.unlink(entry.name, dir_fd=shelf)
            return True
        return False

    def _make(self, shelf: str) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.path.mkdir(mode=0o700)
        with trust.opened_folder(self.path) as top, suppress(FileExistsError):
            os.mkdir(shelf, mode=0o700, dir_fd=top)

    @contextmanager
    def _shelf(self, name: str) -> Iterator[int]:
        with ExitStack() as stack:
            top = stack.enter_context(trust.opened_folder(self.path))
            yield stack.enter_context(trust.opened_folder(self.path / name, within=top))


def _on_shelf(path: Path, top: int) -> Iterator[Entry]:
    """Files of one of the 256 folders; anything else that lies about is none of ours."""
    with suppress(FileNotFoundError), trust.opened_folder(path, within=top) as shelf:
        for name in _names(shelf):
            if not name.endswith((SUFFIX, TEMPORARY)):
                continue
            with suppress(FileNotFoundError):  # another process removed it
                info = os.stat(name, dir_fd=shelf, follow_symlinks=False)
                if not stat.S_ISDIR(info.st_mode):
                    yield Entry(path.name, name, info.st_size, info.st_mtime)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _write_new(name: str, data: bytes, within: int) -> None:
    """A new file with these contents, on the disk when this returns."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=within)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(temporary: str, name: str, within: int) -> bool:
    """Give a file its name; False if the name is taken."""
    try:
        os.link(temporary, name, src_dir_fd=within, dst_dir_fd=within, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _rename(temporary, name, within)
    return True


def _rename(temporary: str, name: str, within: int) -> bool:
    """The same without hard links: of two writers in the same instant, the last one wins."""
    try:
        os.stat(name, dir_fd=within, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(temporary, name, src_dir_fd=within, dst_dir_fd=within)
        return True
    return False
