"""Results as a page of the documentation.

``python -m bench.render RESULTS.json --out docs/benchmarks/h200.md [--png h200.png]``
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .compare import Comparison
from .report import markdown, notes, tables
from .results import comparisons_of

_LABELS = {
    "gpu": "GPU",
    "driver": "driver",
    "cpu": "host",
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "jax": "jax",
    "cudnn_frontend": "cudnn-frontend",
    "commit": "commit",
}


def page(results: dict[str, Any], picture: str | None = None) -> str:
    """The whole page, in Markdown."""
    machine = results.get("machine") or {}
    settings = (results.get("bench") or {}).get("settings", {})
    parts = [
        f"# Measured on {machine.get('gpu') or 'an unknown GPU'}",
        "Made by `python -m bench.render`; [README](README.md) says what the figures mean.",
        f"```console\n{results.get('command') or 'python -m bench'}\n```",
        markdown(["what", "version"], _machine(machine)),
    ]
    if settings:
        parts.append(
            f"Operands {settings['dtype']}, {settings['layout'].upper()} in torch; medians of "
            f"{settings['rounds']} interleaved rounds of {settings['samples']} samples."
        )
    comparisons = comparisons_of(results)
    for title, head, lines in tables(comparisons):
        parts += [f"## {title}", markdown(head, lines)]
    parts += [f"* {note}" for note in notes(comparisons)]
    if picture:
        parts.append(f"![TFLOP/s of each row]({picture})")
    parts += _tests(results.get("tests") or {})
    return "\n\n".join(parts) + "\n"


def _machine(machine: dict[str, Any]) -> list[list[str]]:
    return [[label, str(machine[key])] for key, label in _LABELS.items() if machine.get(key)]


def _tests(reports: dict[str, Any]) -> list[str]:
    lines = [
        [name, str(found["passed"]), str(len(found["failed"])), str(len(found["skipped"]))]
        for name, found in reports.items()
    ]
    if not lines:
        return []
    head = ["part", "passed", "failed", "skipped"]
    return ["## Tests in the same run", markdown(head, lines)]


def draw(comparisons: Sequence[Comparison], path: Path) -> None:
    """Bars of TFLOP/s for each row, torch's device time, forward above backward."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = [c for c in comparisons if c.kind == "device" and c.flops]
    directions = list(dict.fromkeys(c.what for c in shown))
    figure, axes = plt.subplots(
        len(directions), 1, figsize=(11, 3.2 * len(directions)), squeeze=False, layout="constrained"
    )
    for axis, what in zip(axes[:, 0], directions, strict=True):
        rows = [c for c in shown if c.what == what]
        peers = list(dict.fromkeys(name for c in rows for name in c.samples))
        width = 0.8 / len(peers)
        for number, name in enumerate(peers):
            places = [i + (number - (len(peers) - 1) / 2) * width for i in range(len(rows))]
            axis.bar(places, [c.tflops(name) or 0.0 for c in rows], width, label=name)
        axis.set_xticks(range(len(rows)), [_label(c.row) for c in rows], fontsize=7)
        axis.set(ylabel=f"{what}, TFLOP/s")
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), ncols=5, frameon=False, loc="outside upper center"
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _label(row: str) -> str:
    """``B,H,Hkv,S,D,mask`` on three lines."""
    batch, heads, heads_kv, tokens, head_dim, mask = row.split(",")
    return f"B {batch}, H {heads}/{heads_kv}\nS {tokens}, D {head_dim}\n{mask}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.render", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the page")
    parser.add_argument("--png", type=Path, help="a picture, beside the page")
    given = parser.parse_args(argv)
    results = json.loads(given.results.read_text())
    if given.png:
        draw(comparisons_of(results), given.png)
    given.out.write_text(page(results, given.png.name if given.png else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
