"""``plans export`` and ``plans import``: packs, which carry plans to other machines."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...config import settings
from ...store import Inspected, Pack, inspected, write_pack
from ...store.eviction import Eviction
from ...store.inspection import read
from ..command import Command
from . import places, words


def check_new(folder: Path) -> None:
    """Raise ``ValueError`` unless a pack can be made here."""
    empty = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    if os.path.lexists(folder) and not empty:
        raise ValueError(f"{folder} is there already; a pack needs a new or an empty folder")


def new_pack(folder: Path, files: Iterable[bytes]) -> Pack | None:
    """Make a pack of store files; it appears whole or not at all. None if there is no file.

    Raises:
        ValueError: there is something in the folder.
        BadPlanError: a file is damaged.
        OSError: the system refuses.
    """
    check_new(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.unfinished")
    try:
        if not write_pack(unfinished, files).plans:
            return None
        unfinished.rename(folder)
        return Pack(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def described(pack: Pack) -> str:
    """``12 plans, 3.4 MB, in PACK``."""
    total = sum(one.bytes for one in pack.plans.values())
    return f"{words.count(len(pack.plans))}, {words.size(total)}, in {pack.path}"


def _add_export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="new or empty")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="plans whose problem or fingerprint has this"
    )


def _export(given: Namespace) -> int:
    bad: list[Inspected] = []
    pack = new_pack(given.folder, _files(given.only, bad))
    for one in bad:
        sys.stderr.write(f"left out {one.path}: {one.fault}\n")
    if pack is None:
        which = f"no plan with {given.only!r}" if given.only else "no plan"
        raise ValueError(f"{which} in {places.users_folder().path}")
    sys.stdout.write(f"{described(pack)}\n")
    return 1 if bad else 0


def _files(only: str, bad: list[Inspected]) -> Iterator[bytes]:
    for one in inspected(places.users_folder()):
        if one.fault is not None:
            bad.append(one)
        elif only in one.provenance.problem or one.key.startswith(only):
            yield read(one.path)


EXPORT = Command(
    name="export",
    summary="Make a pack of the user's plans.",
    add_arguments=_add_export_arguments,
    run=_export,
    epilog="SDPA_PLAN_PACKS names packs for a process to read; `plans import` copies one.",
)


def _add_import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a pack")


def _import(given: Namespace) -> int:
    folder, pack = places.users_folder(), Pack(given.folder)
    written = there = bad = 0
    for one in places.in_pack(pack):
        if one.fault is not None:
            bad += 1
            sys.stderr.write(f"left out {one.path}: {one.fault}\n")
            continue
        file = pack.read(one.key)
        assert file is not None, "the manifest lists it"
        new = folder.write(one.key, file.data)
        written, there = written + new, there + (not new)
    removed = len(Eviction(folder, settings().cache_bytes).sweep())
    sys.stdout.write(f"{words.count(written)} imported, {there} already there, {bad} bad\n")
    if removed:
        sys.stderr.write(
            f"{words.count(removed, 'file')} were removed again: the folder was larger than "
            f"SDPA_CACHE_BYTES = {settings().cache_bytes}\n"
        )
    return 1 if bad else 0


IMPORT = Command(
    name="import",
    summary="Copy the plans of a pack into the user's folder.",
    add_arguments=_add_import_arguments,
    run=_import,
    epilog="Plans that are there stay as they are.",
)
