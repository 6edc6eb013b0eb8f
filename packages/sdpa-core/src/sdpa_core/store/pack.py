"""Plan packs: read-only folders of plans that were built elsewhere.

A pack holds ``<fingerprint>.plan`` files of the store's format and a ``manifest.json``::

    {"format": 1,
     "cudnn_versions": ["9.19.0"], "frontend_versions": ["1.32.0"],
     "devices": [{"sm": 90, "sm_count": 132}],
     "plans": {"<fingerprint>": {"sha256": "<of the file>", "bytes": 123, "label": "..."}}}

Only ``format`` and ``plans`` are read to find a plan; the rest is for people and tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from ..device import format_version
from ..plan import BadPlanError, Header
from . import trust
from .folder import SUFFIX
from .frame import Provenance, unwrap
from .trust import File

MANIFEST = "manifest.json"
PACK_FORMAT = 1

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Listed:
    """What a manifest says of a plan: hash and size of its file, and what it is for."""

    sha256: str
    bytes: int
    label: str


class Pack:
    """A folder with a manifest, read only; it may be a link, what is in it may not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def path_of(self, key: str) -> Path:
        return self.path / (key + SUFFIX)

    @cached_property
    def plans(self) -> Mapping[str, Listed]:
        """The manifest's plans, by fingerprint; read once.

        Raises:
            BadPlanError: the manifest is malformed.
            NotTrustedError, OSError: folder or manifest must not or cannot be read.
        """
        with trust.opened_folder(self.path, follow=True) as folder:
            return _read_manifest(trust.read_file(MANIFEST, folder).data)

    def read(self, key: str) -> File | None:
        """The file of a key; None if the manifest does not list it.

        Raises:
            BadPlanError: the file is not the one that the manifest lists.
            NotTrustedError, OSError: it must not or cannot be read.
        """
        listed = self.plans.get(key)
        if listed is None:
            return None
        with trust.opened_folder(self.path, follow=True) as folder:
            file = trust.read_file(key + SUFFIX, folder)
        if (len(file.data), sha256(file.data).hexdigest()) != (listed.bytes, listed.sha256):
            raise BadPlanError("it is not the file that the pack's manifest lists")
        return file


def _read_manifest(data: bytes) -> dict[str, Listed]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadPlanError(f"it is no JSON ({error})") from error
    if not isinstance(found, dict) or found.get("format") != PACK_FORMAT:
        raise BadPlanError(f"it is no manifest of format {PACK_FORMAT}")
    plans = found.get("plans")
    if not isinstance(plans, dict):
        raise BadPlanError("it has no table of plans")
    return {key: _listed(key, entry) for key, entry in plans.items()}


def _listed(key: str, entry: object) -> Listed:
    if _KEY.fullmatch(key) and isinstance(entry, dict):
        digest, size, label = entry.get("sha256"), entry.get("bytes"), entry.get("label", "")
        if isinstance(digest, str) and type(size) is int and isinstance(label, str):
            return Listed(digest, size, label)
    raise BadPlanError(f"its entry {key[:80]!r} is malformed")


def write_pack(folder: Path, files: Iterable[bytes]) -> Pack:
    """Make a pack of store files.

    Args:
        folder: where; made if it is not there, must be empty if it is.
        files: whole files of a store. Of several with one fingerprint, the first is taken.

    Raises:
        ValueError: the folder is not empty.
        BadPlanError: one of the files is damaged.
        OSError: the system refuses.
    """
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; a pack needs a folder of its own")
    plans: dict[str, dict[str, object]] = {}
    headers = []
    for data in files:
        words, container = unwrap(data)
        header = Header.read(container)
        key = header.fingerprint.hex()
        if key in plans:
            continue
        label = ""
        with suppress(BadPlanError):
            label = Provenance.read(words).problem
        plans[key] = {"sha256": sha256(data).hexdigest(), "bytes": len(data), "label": label}
        headers.append(header)
        _write(folder / (key + SUFFIX), data)
    manifest = {"format": PACK_FORMAT, **_summary(headers), "plans": plans}
    # Last, so that a pack that was not finished is none.
    _write(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
    return Pack(folder)


def _summary(headers: list[Header]) -> dict[str, object]:
    devices = sorted({(header.sm, header.sm_count) for header in headers})
    return {
        "cudnn_versions": _versions(header.cudnn_version for header in headers),
        "frontend_versions": _versions(header.frontend_version for header in headers),
        "devices": [{"sm": sm, "sm_count": count} for sm, count in devices],
    }


def _versions(numbers: Iterable[int]) -> list[str]:
    return [format_version(number) for number in sorted(set(numbers))]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o644)
