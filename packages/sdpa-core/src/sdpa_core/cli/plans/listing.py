"""``plans list`` and ``plans show``."""

from __future__ import annotations

import json
import string
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from ...device import format_version
from ...store import Inspected
from ..command import Command
from . import places, words

_HEADINGS = ("plan", "direction", "sm", "cuDNN", "frontend", "bytes", "last use", "problem")
_NUMBERS = frozenset((2, 5))


def _add_list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")
    places.add_pack_argument(parser)


def _list(given: Namespace) -> int:
    path, plans = places.chosen(given)
    found = list(plans)
    if given.json:
        sys.stdout.write(f"{json.dumps([words.facts(one) for one in found], indent=1)}\n")
        return 0
    if found:
        sys.stdout.write(f"{words.aligned([_HEADINGS, *map(_row, found)], _NUMBERS)}\n")
    total = words.size(sum(one.bytes for one in found))
    sys.stdout.write(f"{words.count(len(found))}, {total}, in {path}\n")
    return 0


def _row(found: Inspected) -> tuple[str, ...]:
    direction, problem = words.split_label(found.provenance.problem)
    header = found.header
    of: tuple[str, ...] = ("", "", "")
    if header is not None:
        versions = map(format_version, (header.cudnn_version, header.frontend_version))
        of = (str(header.sm), *versions)
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.used))
    text = problem if found.fault is None else f"bad: {found.fault}"
    return (found.key[: words.SHORT], direction, *of, f"{found.bytes:,}", used, text)


LIST = Command(
    name="list",
    summary="List the plans on disk.",
    add_arguments=_add_list_arguments,
    run=_list,
)


def _add_show_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("prefix", type=_prefix, metavar="PREFIX", help="of its fingerprint")
    places.add_pack_argument(parser)


def _prefix(text: str) -> str:
    if not text or not set(text) <= set(string.hexdigits) or len(text) > 64:
        raise ArgumentTypeError(f"{text!r}; expected the first hexadecimal digits of a fingerprint")
    return text.lower()


def _show(given: Namespace) -> int:
    path, plans = places.chosen(given)
    found = [one for one in plans if one.key.startswith(given.prefix)]
    if not found:
        raise ValueError(f"no plan in {path} starts with {given.prefix}")
    if len(found) > 1:
        some = ", ".join(one.key[: max(words.SHORT, len(given.prefix) + 1)] for one in found[:4])
        raise ValueError(f"{len(found)} plans start with {given.prefix}: {some}; give more digits")
    told = {name: text for name, text in words.facts(found[0]).items() if text not in ("", None)}
    rows = [(name.replace("_", " "), _shown(text)) for name, text in told.items()]
    sys.stdout.write(f"{words.aligned(rows)}\n")
    return 0


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


SHOW = Command(
    name="show",
    summary="Show all that is known of one plan.",
    add_arguments=_add_show_arguments,
    run=_show,
)
