"""Which files may be read: those of this user or of root that nobody else can write.

A compiled plan decides which kernels run on which addresses, so who can write a plan can control
the process that loads it. Everything is opened without following links, relative to folders that
are already open, and judged by what was opened, so that nothing can be exchanged in between.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Without these a store cannot be kept safely, and is not kept.
SUPPORTED = hasattr(os, "geteuid") and os.open in os.supports_dir_fd

#: More than any plan has, by far: a larger file is no plan, and is not read.
LARGEST_FILE = 256 << 20

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_COMMON = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
#: Opening a pipe that nobody writes to would wait for ever.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _COMMON
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _COMMON


class NotTrustedError(Exception):
    """A file or folder must not be used; the text is one sentence.

    Attributes:
        identity: of a file in this user's hands, which may be removed; else None.
        folder: the folder, if it is one; the text names it.
    """

    def __init__(
        self, reason: str, identity: tuple[int, int] | None = None, folder: Path | None = None
    ) -> None:
        super().__init__(reason)
        self.identity = identity
        self.folder = folder


@dataclass(frozen=True, slots=True)
class File:
    """What was read.

    Attributes:
        data: all of it.
        identity: device and inode.
        ours: whether it belongs to this user.
    """

    data: bytes
    identity: tuple[int, int]
    ours: bool


@contextmanager
def opened_folder(path: Path, *, within: int | None = None, follow: bool = False) -> Iterator[int]:
    """The descriptor of a folder that may be used, while the block runs.

    Args:
        path: where it is.
        within: descriptor of its parent, if that may be used and is open.
        follow: whether it may be a symbolic link.

    Raises:
        NotTrustedError: it is a link or no folder, or others own it or can write to it.
        OSError: it cannot be opened.
    """
    flags = _FOLDER & ~getattr(os, "O_NOFOLLOW", 0) if follow else _FOLDER
    name = path if within is None else path.name
    try:
        descriptor = os.open(name, flags, dir_fd=within)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        link = stat.S_ISLNK(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode)
        what = "a symbolic link" if link else "no folder"
        raise NotTrustedError(f"the folder {path} is {what}", folder=path) from error
    try:
        if fault := _fault(os.fstat(descriptor)):
            raise NotTrustedError(f"of the folder {path}, {fault}", folder=path)
        yield descriptor
    finally:
        os.close(descriptor)


def read_file(name: str, within: int, fresh_for: float | None = None) -> File:
    """A file in an open folder.

    Args:
        name: its name.
        within: descriptor of the folder.
        fresh_for: mark the file as used now if its last mark is older than so many seconds; None
            never does.

    Raises:
        NotTrustedError: it is a link or no regular file, or others own it or can write to it.
        OSError: it cannot be read; ``FileNotFoundError`` if it is not there.
    """
    try:
        descriptor = os.open(name, _READ, dir_fd=within)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        info = os.stat(name, dir_fd=within, follow_symlinks=False)
        raise NotTrustedError("it is a symbolic link", _removable(info)) from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise NotTrustedError("it is no regular file", _removable(info))
        if fault := _fault(info):
            raise NotTrustedError(fault, _removable(info))
        if info.st_size > LARGEST_FILE:
            raise NotTrustedError(f"it has {info.st_size} bytes", _removable(info))
        if fresh_for is not None:
            _mark_used(descriptor, info, fresh_for)
        return File(_read_all(descriptor, info.st_size), _identity(info), _is_ours(info))
    finally:
        os.close(descriptor)


def _fault(info: os.stat_result) -> str | None:
    """Why a file or folder must not be used; None if it may."""
    if info.st_uid not in (os.geteuid(), 0):
        return f"the owner is user {info.st_uid}, neither this user ({os.geteuid()}) nor root"
    if info.st_mode & _OTHERS:
        return f"others than the owner can write (mode {stat.S_IMODE(info.st_mode):o})"
    return None


def _is_ours(info: os.stat_result) -> bool:
    return info.st_uid == os.geteuid()


def _identity(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _removable(info: os.stat_result) -> tuple[int, int] | None:
    """The identity of what this user may remove: no folder, and nobody else's."""
    return _identity(info) if _is_ours(info) and not stat.S_ISDIR(info.st_mode) else None


def _read_all(descriptor: int, size: int) -> bytes:
    parts = []
    while size > 0 and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _mark_used(descriptor: int, info: os.stat_result, fresh_for: float) -> None:
    """Set the time of last use, which eviction goes by; rarely, since it writes to the disk."""
    if time.time() - info.st_mtime <= fresh_for:
        return
    try:
        os.utime(descriptor)
    except OSError:  # root's file, or a read-only file system: it may be evicted early
        return
