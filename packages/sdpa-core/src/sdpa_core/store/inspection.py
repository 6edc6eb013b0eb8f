"""Looking at files of a store without knowing the problems they are for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..plan import BadPlanError, Header
from . import trust
from .folder import SUFFIX, Entry, Folder
from .frame import Provenance, unwrap
from .trust import NotTrustedError


@dataclass(frozen=True, slots=True)
class Inspected:
    """A file of a store.

    Attributes:
        path: where it is.
        key: the fingerprint in its name.
        bytes: its size.
        used: when it was last used, in seconds since the epoch.
        header: what the plan says of itself; None if the file is bad.
        provenance: where it comes from; without texts if the file is bad.
        fault: what is wrong with it, one sentence; None if nothing is.
    """

    path: Path
    key: str
    bytes: int
    used: float
    header: Header | None
    provenance: Provenance
    fault: str | None


def inspected(folder: Folder) -> Iterator[Inspected]:
    """All plans of a folder, in the order of their fingerprints; nothing is changed.

    Raises:
        NotTrustedError, OSError: the folder must not or cannot be read.
    """
    for entry in folder.entries():
        if entry.is_plan:
            yield _inspect(folder, entry)


def _inspect(folder: Folder, entry: Entry) -> Inspected:
    path = folder.path / entry.shelf / entry.name
    header, provenance, fault = None, Provenance(), None
    try:
        header, provenance = parsed(read(path), entry.key)
    except (BadPlanError, NotTrustedError, OSError) as error:
        fault = str(error)
    return Inspected(path, entry.key, entry.bytes, entry.used, header, provenance, fault)


def read(path: Path) -> bytes:
    """The whole file, which does not count as used.

    Raises:
        NotTrustedError, OSError: it must not or cannot be read.
    """
    with trust.opened_folder(path.parent, follow=True) as within:
        return trust.read_file(path.name, within).data


def parsed(data: bytes, key: str) -> tuple[Header, Provenance]:
    """What a file says of itself.

    Raises:
        BadPlanError: it is damaged, or of another key.
    """
    words, container = unwrap(data)
    header = Header.read(container)
    if header.fingerprint.hex() != key:
        raise BadPlanError(
            f"it holds the plan {header.fingerprint.hex()[:12]}, its name says {key[:12]}{SUFFIX}"
        )
    return header, Provenance.read(words)
