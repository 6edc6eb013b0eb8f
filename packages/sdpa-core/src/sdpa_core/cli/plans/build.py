"""``plans build``: plans for devices that need not be here, from a file of shapes."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...cudnn import probe, session
from ...device import DeviceSpec, device_names
from ...direction import Direction
from .. import values
from ..command import Command
from . import packs
from .devices import device
from .report import Report, said
from .running import run
from .shapes import Shape, read_shapes
from .tasks import Kind, Outcome, lost, tasks


def _add_arguments(parser: ArgumentParser) -> None:
    parser.usage = f"{parser.prog} --device NAME [NAME ...] [OPTION ...] SHAPES.toml"
    parser.add_argument("shapes", nargs="?", metavar="SHAPES.toml", help="see docs/plans.md")
    parser.add_argument(
        "--device",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"among {', '.join(device_names())}, or a file PROPS.json of properties",
    )
    parser.add_argument(
        "--direction", type=Direction, choices=list(Direction), help="default both, in training"
    )
    parser.add_argument("--out", type=Path, metavar="PACK", help="also make a pack, a new folder")
    parser.add_argument(
        "--jobs", type=values.count, default=1, metavar="N", help="processes; default 1"
    )


def _run(given: Namespace) -> int:
    shapes, devices = _inputs(given)
    report = Report()
    if given.out is None and probe.store() is None:
        raise ValueError("there is no store (SDPA_PLAN_STORE), so plans need --out PACK")
    if given.out is not None:
        packs.check_new(given.out)
    directions = tuple(Direction) if given.direction is None else (given.direction,)
    wanted = tasks(shapes, devices, directions)
    outcomes: list[Outcome] = []

    def files() -> Iterator[bytes]:
        running = run(wanted, given.jobs, with_files=given.out is not None)
        for outcome in report.progress(running, len(wanted)):
            outcomes.append(replace(outcome, file=None))
            if outcome.file is not None:
                yield outcome.file

    if given.out is None:
        list(files())
        outcomes = [lost(outcome) for outcome in outcomes]
        pack = None
    else:
        pack = packs.new_pack(given.out, files())
    report.summary(outcomes)
    sys.stdout.write(f"{said(outcomes)}\n")
    if given.out is not None:
        sys.stdout.write(f"{packs.described(pack) if pack else 'no plan, so no pack'}\n")
    return 1 if any(outcome.kind is Kind.FAILED for outcome in outcomes) else 0


def _inputs(given: Namespace) -> tuple[list[Shape], list[DeviceSpec]]:
    """Shapes and devices; argparse counts a file after the devices as one of these."""
    names = list(given.device)
    path = given.shapes
    if path is None and names and names[-1].endswith(".toml"):
        path = names.pop()
    if path is None:
        raise ValueError("the following arguments are required: SHAPES.toml")
    if not names:
        raise ValueError("the following arguments are required: --device")
    devices = [device(name) for name in names]
    shapes = read_shapes(Path(path))
    if not shapes:
        raise ValueError(f"{path}: there are no [[attention]] tables")
    # Only now: cuDNN is loaded for it.
    installed = session.cudnn_version()
    return shapes, [replace(one, cudnn_version=installed) for one in devices]


BUILD = Command(
    name="build",
    summary="Build plans for devices that need not be here, and keep them.",
    add_arguments=_add_arguments,
    run=_run,
    epilog="Plans are for the cuDNN and the frontend that are installed. They are kept in the "
    "user's folder, unless SDPA_PLAN_STORE=off, and put into the pack if there is to be one. "
    "Refused problems are no failure: there is no plan for them.",
)
