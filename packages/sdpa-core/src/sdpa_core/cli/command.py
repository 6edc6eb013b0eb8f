"""What a subcommand is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand.

    Attributes:
        name: as typed.
        summary: one sentence for help.
        add_arguments: adds its options to a parser.
        run: does it, and gives the exit status. A mistake of the caller is a ``ValueError`` or
            ``TypeError`` whose text is one line.
        epilog: the last paragraph of its help.
    """

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    epilog: str = ""
