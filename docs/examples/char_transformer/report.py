"""What people see in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from textwrap import indent

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sdpa_core import Decision

from .inspection import BuiltPlan, Errors

console = Console(highlight=False)


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def decisions(asked: Mapping[str, Decision]) -> None:
    """What ``explain`` says in each framework; once, if it is the same."""
    frameworks: dict[str, list[str]] = {}
    for name, decision in asked.items():
        frameworks.setdefault(str(decision), []).append(name)
    for text, names in frameworks.items():
        console.print(f"explain() in {' and '.join(names)}:\n{indent(text, '  ')}", markup=False)


def watch(label: str, losses: Iterator[float], steps: int) -> list[float]:
    """The losses, collected behind a progress bar."""
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
    )
    seen: list[float] = []
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=steps, loss=float("nan"))
        for loss in losses:
            seen.append(loss)
            progress.update(task, advance=1, loss=loss)
    return seen


def plans(built: Iterable[BuiltPlan]) -> None:
    table = _table("direction", "engine", "blob", "workspace", "operands", "built in")
    for row in built:
        table.add_row(
            row.direction,
            row.plan.engine.split("_")[0],
            f"{len(row.plan.blob):,} bytes",
            f"{row.plan.workspace_bytes:,} bytes",
            str(row.operands),
            f"{row.seconds:.1f} s",
        )
    console.print(table)


def errors(rows: Iterable[Errors]) -> None:
    table = _table("", "PyTorch", "JAX", "between them", "share of the allowed error")
    for row in rows:
        numbers = (row.in_torch, row.in_jax, row.between)
        table.add_row(row.tensor, *(f"{number:.1e}" for number in numbers), f"{row.share:.0%}")
    console.print(table)


def curves(losses: Mapping[str, list[float]], rows: int = 7) -> None:
    """The loss of every few steps, one column per framework, and each whole curve in one line."""
    table = _table("step", *losses, "difference")
    steps = len(next(iter(losses.values())))
    shown = sorted({round(i * (steps - 1) / (rows - 1)) for i in range(rows)})
    for step in shown:
        values = [curve[step] for curve in losses.values()]
        table.add_row(
            str(step + 1), *(f"{v:.6f}" for v in values), f"{max(values) - min(values):.1e}"
        )
    console.print(table)
    top, bottom = max(map(max, losses.values())), min(map(min, losses.values()))
    every = ceil(steps / 64)
    for name, curve in losses.items():
        console.print(f"{name:<8}{sparkline(curve[::every], bottom, top)}")


def sparkline(values: Iterable[float], bottom: float, top: float) -> str:
    """A curve in one line of text.

    >>> sparkline([4.0, 3.0, 2.0], 2.0, 4.0)
    '█▅▁'
    """
    blocks = "▁▂▃▄▅▆▇█"
    unit = (len(blocks) - 1) / ((top - bottom) or 1.0)
    return "".join(blocks[round((value - bottom) * unit)] for value in values)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table
