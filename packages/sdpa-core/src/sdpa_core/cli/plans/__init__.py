"""``plans``: the plans on disk, and building them ahead, for GPUs that need not be here."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from ...errors import SdpaEnvironmentError
from ...plan import BadPlanError
from ...store import NotTrustedError
from ...store.setting import NoFolderError
from ..command import Command
from . import build, checking, clearing, listing, packs

#: In the order in which help lists them.
ACTIONS: tuple[Command, ...] = (
    listing.LIST,
    listing.SHOW,
    checking.VERIFY,
    clearing.CLEAR,
    packs.EXPORT,
    packs.IMPORT,
    build.BUILD,
)


def _add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for action in ACTIONS:
        one = subparsers.add_parser(
            action.name,
            help=action.summary,
            description=action.summary,
            epilog=action.epilog,
            allow_abbrev=False,
        )
        action.add_arguments(one)
        one.set_defaults(act=action.run)


def _run(given: Namespace) -> int:
    """The action's status; 1, after one line, if system or installation stand in its way."""
    try:
        status: int = given.act(given)
    except NoFolderError as error:
        raise ValueError(str(error)) from error
    except (BadPlanError, NotTrustedError, OSError, SdpaEnvironmentError) as error:
        sys.stderr.write(f"plans {given.action}: {error}\n")
        return 1
    return status


COMMAND = Command(
    name="plans",
    summary="List, check, move and build the plans that are kept on disk.",
    add_arguments=_add_arguments,
    run=_run,
    epilog="The exit status is 0, or 1 if something failed, or 2 if the command or a file it names "
    "is wrong.",
)
