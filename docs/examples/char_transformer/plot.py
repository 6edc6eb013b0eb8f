"""The two loss curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no display is needed

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

STYLE = {
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
}


def save(path: Path, losses: Mapping[str, list[float]], tolerance: float, title: str) -> None:
    """The curves above, their difference and its tolerance below."""
    (first, one), (second, other) = losses.items()
    steps = range(1, len(one) + 1)
    # A difference of exactly 0 has no place on a logarithmic axis.
    differences = [abs(a - b) or nan for a, b in zip(one, other, strict=True)]

    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(
            *(2, 1), sharex=True, figsize=(8, 5.6), height_ratios=(3, 2), layout="constrained"
        )
        upper.plot(steps, one, color="#f4a582", linewidth=6, label=first)
        upper.plot(steps, other, color="#053061", linewidth=1.5, label=second)
        upper.set_ylabel("loss (nats per character)")
        upper.set_title(title, loc="left")
        upper.legend(frameon=False)

        lower.semilogy(steps, differences, ".", markersize=7, color="#555555")
        lower.axhline(tolerance, color="#b2182b", linestyle="--", linewidth=1.2)
        label(lower, 1, tolerance, "tolerance", color="#b2182b", ha="right")
        if any(map(isnan, differences)):
            label(lower, 0.01, tolerance, "no dot: equal to the last bit", color="#555555")
        lower.set_ylabel("|difference| (nats)")
        lower.set_xlabel("training step")
        figure.align_ylabels()

        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Software": None})
        plt.close(figure)


def label(axes: Axes, across: float, value: float, text: str, **style: str) -> None:
    """Text just below a value, at a fraction of the axes' width."""
    where = axes.get_yaxis_transform()
    axes.text(across, value * 0.75, text, transform=where, va="top", fontsize=11, **style)
