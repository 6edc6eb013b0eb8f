"""The backends there are: two of our own, and those that installed packages announce."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from .backend import Answer, Backend, ReferenceBackend
from .cudnn.probe import CudnnBackend
from .device import DeviceSpec
from .problem import AttentionProblem, Direction
from .reasons import Tier, Unsupported, Verdict

#: Entry points of this group name a function without arguments that returns a ``Backend``. A copy
#: of this package vendored under another name has a group of its own.
GROUP = f"{__package__}.backends"

#: Preference where nothing else decides.
DEFAULT_ORDER = ("cudnn", "cutedsl", "reference")


class BrokenBackend:
    """Stands in for a backend whose package failed to import, and says so."""

    rules_suffice = True

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self._reason = Unsupported(
            f"import of the {name} backend",
            f"{type(error).__name__}: {error}",
            "a working installation",
            "reinstall the package that provides it",
        )

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        del problem, device, direction
        return (self._reason,)

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        del problem, device, direction
        return Answer(Verdict.REFUSED, (self._reason,), Tier.RULES)


class Uncallable:
    """A backend that an adapter has no way to call."""

    rules_suffice = True

    def __init__(self, backend: Backend, adapter: str) -> None:
        self.name = backend.name
        self._backend = backend
        self._reason = Unsupported(
            f"the {backend.name} backend",
            "announced by an installed package",
            f"an implementation that {adapter} can call",
            f"upgrade {adapter} and the package",
        )

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        return self._backend.unsupported_reasons(problem, device, direction) or (self._reason,)

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        del problem, device, direction
        return Answer(Verdict.REFUSED, (self._reason,), Tier.RULES)


def callable_backends(
    known: Mapping[str, Backend], names: Collection[str], adapter: str
) -> dict[str, Backend]:
    """The backends as an adapter sees them that can call only some of them."""
    return {
        name: backend if name in names else Uncallable(backend, adapter)
        for name, backend in known.items()
    }


def _load(entry: EntryPoint) -> Backend:
    try:
        return cast(Backend, entry.load()())
    except Exception as error:  # noqa: BLE001 - whatever an import raises is that backend's reason
        return BrokenBackend(entry.name, error)


@cache
def backends() -> Mapping[str, Backend]:
    """Every known backend by name, in the default order; looked up once per process."""
    found: dict[str, Backend] = {"cudnn": CudnnBackend(), "reference": ReferenceBackend()}
    for entry in entry_points(group=GROUP):
        found.setdefault(entry.name, _load(entry))
    order = [name for name in DEFAULT_ORDER if name in found]
    order[-1:-1] = [name for name in found if name not in DEFAULT_ORDER]
    return {name: found[name] for name in order}
