"""``plans verify``: whether what is on disk is whole, and whether cuDNN takes it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...device import DeviceSpec, device_names
from ...errors import SdpaEnvironmentError
from ...plan import Header
from ...store import Inspected, unwrap
from ...store.inspection import read
from ..command import Command
from . import places, words
from .devices import device


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--deep", action="store_true", help="load each plan with cuDNN; no GPU")
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="PROPS.json",
        help="with --deep, a device besides those of the library's list",
    )
    places.add_pack_argument(parser)


@dataclass
class _Found:
    """What was found: faults by path, and why plans were not given to cuDNN."""

    checked: int = 0
    loaded: int = 0
    faults: list[str] = field(default_factory=list)
    not_asked: Counter[str] = field(default_factory=Counter)


def _run(given: Namespace) -> int:
    if given.device and not given.deep:
        raise ValueError("--device needs --deep")
    deep = _Loading(given.device) if given.deep else None
    path, plans = places.chosen(given)
    found = _check(plans, deep)
    bad = len(found.faults)
    lines = [*found.faults, f"{words.count(found.checked)} in {path}: {bad} bad"]
    if deep is not None:
        lines.append(f"cuDNN loads {words.count(found.loaded)}")
        lines += [f"{words.count(n)} not loaded: {why}" for why, n in found.not_asked.items()]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if bad else 0


def _check(plans: Iterable[Inspected], deep: _Loading | None) -> _Found:
    found = _Found()
    for one in plans:
        found.checked += 1
        if one.header is None:
            found.faults.append(f"{one.path}: {one.fault}")
        elif deep is not None:
            deep.load(one, one.header, found)
    return found


class _Loading:
    """The native executor's ``verify``, which needs cuDNN and no GPU."""

    def __init__(self, files: Iterable[str]) -> None:
        try:
            # By name: sdpa_ffi stands on this package.
            self._ffi: Any = import_module("sdpa_ffi")
        except ImportError as error:
            raise ValueError(
                f"--deep needs sdpa-ffi ({error}); install it with: pip install sdpa-ffi"
            ) from error
        given = [device(file) for file in files]
        self._devices = [*given, *map(DeviceSpec.named, device_names())]

    def load(self, one: Inspected, header: Header, found: _Found) -> None:
        wanted = (header.sm, header.sm_count)
        alike = [spec for spec in self._devices if (spec.sm, spec.sm_count) == wanted]
        if not alike:
            found.not_asked[
                f"no description of a device of compute capability {header.sm / 10} with "
                f"{header.sm_count} multiprocessors; give --device PROPS.json"
            ] += 1
            return
        try:
            self._ffi.verify(unwrap(read(one.path))[1], alike[0].properties)
        except (SdpaEnvironmentError, self._ffi.ExecutorEnvironmentError) as error:
            found.not_asked[_line(error)] += 1
        except (ValueError, RuntimeError) as error:
            found.faults.append(f"{one.path}: {_line(error)}")
        else:
            found.loaded += 1


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


VERIFY = Command(
    name="verify",
    summary="Check that the plans on disk are whole.",
    add_arguments=_add_arguments,
    run=_run,
    epilog="Nothing is changed. A bad plan is replaced when it is next asked for; the status is 1 "
    "if there is one.",
)
