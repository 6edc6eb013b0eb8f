"""A file of the store: a frame around a plan's container.

All integers are little endian.

| offset | bytes | field                                                        |
|-------:|------:|--------------------------------------------------------------|
|      0 |     8 | magic ``SDPASTOR``                                           |
|      8 |     4 | store format                                                 |
|     12 |     4 | bytes of the provenance, n                                   |
|     16 |    32 | sha256 of all bytes before and after: integrity, not trust   |
|     48 |     n | provenance: a JSON object of texts, UTF-8, for people        |
| 48 + n |       | the container, see ``sdpa_core.plan``                        |
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256

from ..plan import BadPlanError

MAGIC = b"SDPASTOR"
STORE_FORMAT = 1

_START = struct.Struct("<8sII")
_FRAME_BYTES = _START.size + 32
_MOST_PROVENANCE = 1 << 16
_LONGEST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a plan comes from, in words; nothing is decided by it.

    Attributes:
        problem: what it computes, as ``words.summary`` tells it.
        built: when, in ISO 8601.
        tool: what wrote the file, with its version.
    """

    problem: str = ""
    built: str = ""
    tool: str = ""

    @classmethod
    def now(cls, problem: str) -> Provenance:
        built = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(problem[:_LONGEST_TEXT], built, _tool())

    @classmethod
    def read(cls, data: bytes) -> Provenance:
        """Raises ``BadPlanError`` if the bytes are something else."""
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BadPlanError(f"its provenance is no JSON ({error})") from error
        if not isinstance(found, dict):
            raise BadPlanError("its provenance is no JSON object")
        texts = {name: found.get(name, "") for name in cls.__slots__}
        return cls(**{name: text if isinstance(text, str) else "" for name, text in texts.items()})


@cache
def _tool() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms that reading spares

    try:
        return f"sdpa-core {version('sdpa-core')}"
    except PackageNotFoundError:  # a source tree, or a vendored copy
        return "sdpa-core"


def wrap(container: bytes, provenance: Provenance) -> bytes:
    """The bytes of a store file."""
    words = json.dumps(asdict(provenance), ensure_ascii=False).encode(errors="replace")
    start = _START.pack(MAGIC, STORE_FORMAT, len(words))
    return start + _digest(start, words, container) + words + container


def unwrap(data: bytes) -> tuple[bytes, bytes]:
    """Provenance, unread, and container of a store file that is whole.

    Raises:
        BadPlanError: it is no store file, of another format, or damaged.
    """
    if len(data) < _FRAME_BYTES:
        raise BadPlanError(f"it has {len(data)} bytes, a store file has more than {_FRAME_BYTES}")
    magic, found, words = _START.unpack_from(data)
    if magic != MAGIC:
        raise BadPlanError("it is no file of the plan store")
    if found != STORE_FORMAT:
        raise BadPlanError(f"it has store format {found}, expected is {STORE_FORMAT}")
    start = _FRAME_BYTES + words
    if words > _MOST_PROVENANCE or start > len(data):
        raise BadPlanError(f"it claims {words} bytes of provenance")
    if data[_START.size : _FRAME_BYTES] != _digest(
        data[: _START.size], memoryview(data)[_FRAME_BYTES:]
    ):
        raise BadPlanError("the hash of its contents is not the one in its frame")
    return data[_FRAME_BYTES:start], data[start:]


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
