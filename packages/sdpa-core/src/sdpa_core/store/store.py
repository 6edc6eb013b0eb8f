"""Plans on disk: the user's folder, and under it read-only packs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from ..events import Event, stages, tell, wanted
from ..plan import BadPlanError, Expected, Plan
from .eviction import Eviction
from .folder import Folder
from .frame import Provenance, unwrap, wrap
from .pack import MANIFEST, Pack
from .trust import File, NotTrustedError

Label = Callable[[], str]


class _Layer(Protocol):
    """Where plans may be: the user's folder or a pack."""

    path: Path

    def path_of(self, key: str) -> Path: ...

    def read(self, key: str) -> File | None: ...


def _no_label() -> str:
    return ""


class Store:
    """Plans by fingerprint, for many threads and processes at once.

    A plan that is read was written by this user or root, is whole, and is the one that was asked
    for in every field; anything else is not loaded, told once, and if it is this user's removed,
    so that the next build replaces it. No fault of the disk is an error: what cannot be read is
    built, what cannot be written is used from memory.

    Args:
        base: the user's folder, see ``Folder``.
        packs: folders that are read after it, in this order, see ``pack``.
        cap: bytes beyond which the least recently used plans of the user's folder are removed.
        count: is told the kind of each event.
    """

    def __init__(
        self,
        base: Path,
        packs: Iterable[Path] = (),
        cap: int = 1 << 30,
        count: Callable[[str], object] = lambda kind: None,
    ) -> None:
        self.folder = Folder(base)
        self.packs = tuple(Pack(path) for path in packs)
        self._layers: tuple[_Layer, ...] = (self.folder, *self.packs)
        self._eviction = Eviction(self.folder, cap)
        self._count = count
        # No lock, which a fork could leave locked: a dict's setdefault is one step.
        self._told: dict[tuple[str, str], object] = {}
        self._refused: dict[bytes, object] = {}

    def get(self, expected: Expected, label: Label = _no_label) -> Plan | None:
        """The plan that is expected, if a layer has it."""
        start, key = time.perf_counter(), expected.fingerprint
        with stages("store"):
            for layer in self._layers:
                plan = self._read(layer, expected)
                if plan is not None:
                    where = str(layer.path_of(key))
                    self._happened("store hit", key, label, where, start)
                    return plan
        self._happened("store miss", key, label, "", start)
        return None

    def put(self, plan: Plan, label: Label = _no_label) -> Plan:
        """Keep a plan that was built. The one to use: that of the first process to write it.

        cuDNN's blobs differ from build to build, and what contains them should not: JAX's
        persistent cache finds a program again only if its plan has the same bytes.
        """
        with stages("store"):
            try:
                return self._put(plan, label)
            except (NotTrustedError, OSError) as error:
                fate = "the plan is used from memory"
                self._bad(self.folder.path, error, fate, plan.fingerprint)
        return plan

    def discard(self, plan: Plan, error: BaseException) -> None:
        """Never return this plan again: its executor refused it."""
        key = plan.fingerprint
        self._refused[sha256(plan.container).digest()] = True
        fault, fate = f"it cannot be loaded ({_sentence(error)})", "it is built again"
        try:
            file = self.folder.read(key)
            if file is None or unwrap(file.data)[1] != plan.container:
                paths = (pack.path_of(key) for pack in self.packs)
                where = next((path for path in paths if path.exists()), None)
                if where is not None:
                    self._bad(where, fault, fate, key)
            else:
                self._bad(self.folder.path_of(key), fault, fate, key)
                self.folder.remove(key, file.identity)
        except (BadPlanError, NotTrustedError, OSError):
            return  # the next ask meets the same, and tells it

    def _put(self, plan: Plan, label: Label) -> Plan:
        start, key = time.perf_counter(), plan.fingerprint
        data = wrap(plan.container, Provenance.now(label()))
        for _ in range(2):  # a bad file is removed at the first attempt
            if self.folder.write(key, data):
                self._happened("store write", key, label, str(self.folder.path_of(key)), start)
                self._evict(len(data))
                return plan
            winner = self._read(self.folder, plan.expected)
            if winner is not None:
                reason = f"{self.folder.path_of(key)}, written meanwhile by another process"
                self._happened("store hit", key, label, reason, start)
                return winner
        return plan

    def _read(self, layer: _Layer, expected: Expected) -> Plan | None:
        key, file = expected.fingerprint, None
        try:
            file = layer.read(key)
            if file is None:
                return None
            plan = Plan.from_container(unwrap(file.data)[1], expected)
        except (BadPlanError, NotTrustedError, OSError) as error:
            identity = _identity(error, file) if layer is self.folder else None
            self._reject(_where(layer, key), key, error, identity)
            return None
        if self._refused and sha256(plan.container).digest() in self._refused:
            return None  # told already; of a pack, or of a folder that cannot be written
        return plan

    def _reject(
        self, path: Path, key: str, error: Exception, identity: tuple[int, int] | None
    ) -> None:
        """Tell of a file that cannot be used, and remove it if it is this user's own."""
        fate = "it is not used"
        if identity is not None:
            try:
                if self.folder.remove(key, identity):
                    fate = "it was removed"
            except (NotTrustedError, OSError) as failure:
                fate = f"it cannot be removed ({_sentence(failure)}) and is not used"
        self._bad(path, error, fate, key)

    def _evict(self, size: int) -> None:
        try:
            for entry in self._eviction.after_write(size):
                reason = f"{entry.bytes} bytes, last used {_day(entry.used)}"
                self._happened("store eviction", entry.key, _no_label, reason)
        except ImportError as error:
            fault = f"{error}; install it with: pip install filelock"
            self._bad(self.folder.path, fault, "no old plan is removed")
        except (NotTrustedError, OSError) as error:
            self._bad(self.folder.path, error, "no old plan is removed")

    def _bad(self, path: Path, fault: Exception | str, fate: str, key: str = "") -> None:
        """Tell a fault and what follows from it; once for each place and fault."""
        if isinstance(fault, NotTrustedError) and fault.folder is not None:
            path, what = fault.folder, str(fault)  # whatever was wanted there
        else:
            sentence = fault if isinstance(fault, str) else _sentence(fault)
            what = f"{path}: {sentence}"
        mark = object()
        if self._told.setdefault((str(path), what), mark) is mark:
            self._happened("store bad", key, _no_label, f"{what}; {fate}")

    def _happened(
        self, kind: str, key: str, label: Label, reason: str, start: float | None = None
    ) -> None:
        self._count(kind)
        if wanted(kind):
            spent = None if start is None else time.perf_counter() - start
            tell(Event(kind, key, label(), spent, reason=reason))


def _sentence(error: BaseException) -> str:
    """What an error says, on one line, without the path of a system error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())[:500]


def _where(layer: _Layer, key: str) -> Path:
    """What a fault in reading a plan is about: its file, or the pack's manifest before it."""
    unlisted = isinstance(layer, Pack) and "plans" not in vars(layer)
    return layer.path / MANIFEST if unlisted else layer.path_of(key)


def _identity(error: Exception, file: File | None) -> tuple[int, int] | None:
    """The file to remove because of an error; None if it is not this user's."""
    if isinstance(error, NotTrustedError):
        return error.identity
    if isinstance(error, BadPlanError) and file is not None and file.ours:
        return file.identity
    return None


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
