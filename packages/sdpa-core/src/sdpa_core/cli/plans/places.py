"""Where plans lie: the user's folder, or a pack."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ...config import settings
from ...plan import BadPlanError
from ...store import Folder, Inspected, NotTrustedError, Pack, Provenance, inspected, user_folder
from ...store.inspection import parsed
from ...store.trust import SUPPORTED


def add_pack_argument(parser: ArgumentParser) -> None:
    """The option of actions that look at a pack as well."""
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="this pack, not the user's")


def users_folder() -> Folder:
    """The user's folder, whether or not the store is on.

    Raises:
        NoFolderError: there is none.
        ValueError: a store cannot be kept on this system.
    """
    if not SUPPORTED:
        raise ValueError("plans are kept on disk on POSIX systems only")
    return Folder(user_folder(settings()))


def chosen(given: Namespace) -> tuple[Path, Iterator[Inspected]]:
    """The folder that the options name, and its plans by fingerprint."""
    if given.pack is not None:
        return given.pack, in_pack(Pack(given.pack))
    folder = users_folder()
    return folder.path, inspected(folder)


def in_pack(pack: Pack) -> Iterator[Inspected]:
    """All plans that a pack's manifest lists.

    Raises:
        BadPlanError, NotTrustedError, OSError: of the manifest.
    """
    try:
        listed = pack.plans
    except BadPlanError as error:
        raise BadPlanError(f"{pack.path}/manifest.json: {error}") from error
    for key in sorted(listed):
        path, used = pack.path_of(key), 0.0
        header, provenance, fault = None, Provenance(problem=listed[key].label), None
        try:
            file = pack.read(key)
            assert file is not None, "the manifest lists it"
            header, provenance = parsed(file.data, key)
        except (BadPlanError, NotTrustedError, OSError) as error:
            fault = str(error)
        with suppress(OSError):
            used = path.stat().st_mtime
        yield Inspected(path, key, listed[key].bytes, used, header, provenance, fault)
