"""Tables of results: as text, and as Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from .compare import Comparison

#: Our time over the fastest rival's, above which a row is marked. Only device time is held to it.
LIMIT = 1.03

_TITLES = {
    ("device", "torch"): "PyTorch, device time, TFLOP/s",
    ("wall", "jax"): "JAX, wall clock with dispatch, TFLOP/s (a chain: microseconds)",
    ("host", "torch"): "PyTorch, host time of a call, microseconds",
}

Table = tuple[str, list[str], list[list[str]]]


def is_slow(comparison: Comparison) -> bool:
    """Whether we are slower than we promise to be; of the host's time nothing is promised."""
    promised = comparison.kind != "host"
    return promised and comparison.ratio is not None and comparison.ratio > LIMIT


def tables(comparisons: Iterable[Comparison]) -> list[Table]:
    """Title, head and lines for each kind of measurement, in order of first appearance."""

    def kind(c: Comparison) -> tuple[str, str]:
        return c.kind, c.framework

    found: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        found.setdefault(kind(comparison), []).append(comparison)
    return [(_TITLES.get(key, " ".join(key)), *_table(rows)) for key, rows in found.items()]


def _table(comparisons: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    peers = list(dict.fromkeys(name for c in comparisons for name in (*c.samples, *c.unavailable)))
    head = ["B,Hq,Hkv,S,D", "what", *peers, "ours / best", "noise"]
    return head, [_line(c, peers) for c in comparisons]


def _line(comparison: Comparison, peers: Sequence[str]) -> list[str]:
    figures = [_figure(comparison, name) for name in peers]
    ratio = comparison.ratio
    mark = " !" if is_slow(comparison) else ""
    return [
        comparison.row,
        comparison.what,
        *figures,
        "-" if ratio is None else f"{ratio:.3f}{mark}",
        f"{comparison.noise:.1%}",
    ]


def _figure(comparison: Comparison, name: str) -> str:
    time = comparison.milliseconds(name)
    if time is None:
        return "-"
    tflops = comparison.tflops(name)
    return f"{time * 1e3:.1f}" if tflops is None else f"{tflops:.0f}"


def print_tables(comparisons: Sequence[Comparison]) -> None:
    """With rich where it is installed."""
    for title, head, lines in tables(comparisons):
        try:
            _print_rich(title, head, lines)
        except ImportError:
            print(plain(title, head, lines))
    for text in notes(comparisons):
        print(text)


def _print_rich(title: str, head: list[str], lines: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    table = RichTable(title=title, title_justify="left")
    for number, name in enumerate(head):
        table.add_column(name, justify="left" if number < 2 else "right")
    for line in lines:
        table.add_row(*line)
    Console(width=160).print(table)


def plain(title: str, head: list[str], lines: list[list[str]]) -> str:
    """A table of aligned columns."""
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]

    def spaced(line: list[str]) -> str:
        cells = zip(line, widths, strict=True)
        return "  ".join(
            cell.ljust(width) if number < 2 else cell.rjust(width)
            for number, (cell, width) in enumerate(cells)
        ).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([title, spaced(head), rule, *map(spaced, lines), ""])


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """The table in Markdown, figures to the right."""
    rule = [":--" if number < 2 else "--:" for number in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def notes(comparisons: Sequence[Comparison]) -> list[str]:
    """What a reader must know besides the figures."""
    found = [
        f"slower than promised ({c.ratio:.3f} > {LIMIT}): {c.framework} {c.what} {c.row}"
        for c in comparisons
        if is_slow(c)
    ]
    missing = sorted(
        (name, reason, f"{c.what} {c.row}")
        for c in comparisons
        for name, reason in c.unavailable.items()
    )
    for (name, reason), rows in groupby(missing, key=lambda entry: entry[:2]):
        where = [row for *_, row in rows]
        found.append(f"{name} was not measured in {len(where)} rows ({where[0]}, ...): {reason}")
    found += [f"wrong: {fault}" for c in comparisons for fault in c.faults]
    return found
