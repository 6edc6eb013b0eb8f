"""The command line, a table of subcommands. Standard library only, and no framework is imported."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

from . import explain, plans
from .command import Command

#: In the order in which help lists them.
COMMANDS: tuple[Command, ...] = (explain.COMMAND, plans.COMMAND)


class _Parser(ArgumentParser):
    """Mistakes are told in one line, whoever finds them."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


@cache
def parser() -> ArgumentParser:
    """The parser of all subcommands."""
    package = __package__.rpartition(".")[0]
    root = _Parser(prog=f"python -m {package}", description="Attention, without running it.")
    subparsers = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        one = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog=command.epilog,
            allow_abbrev=False,
        )
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process.

    Returns:
        The exit status: 0 if the question was answered, whatever the answer; 1 if something failed;
        2 if the question itself is wrong, after one line on stderr.
    """
    root = parser()
    try:
        arguments = root.parse_args(argv)
        status: int = arguments.run(arguments)
    except (TypeError, ValueError) as error:
        sys.stderr.write(f"{root.prog}: {error}\n")
        return 2
    return status
