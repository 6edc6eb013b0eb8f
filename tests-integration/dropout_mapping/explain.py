"""How many of the decisions that were seen each hypothesis explains."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from sdpa_core.testing.philox_bits import keep_mask

from .hypotheses import THRESHOLDS, hypotheses
from .observations import Observed
from .philox import bits
from .points import Points, sample
from .setups import Setup


def explain(setup: Setup, observed: Observed, vary: tuple[str, ...]) -> dict[str, Any]:
    """The fraction of decisions that each hypothesis explains: the documented and the best ones."""
    seen = sum(int((part >= 0).sum()) for part in observed)
    visible = sum(
        int(setup.visible(b, part.device).sum()) * setup.heads for b, part in enumerate(observed)
    )
    result: dict[str, Any] = {"written": round(seen / visible, 6)}
    if not seen:
        return result | {"error": "no decision was seen"}
    everything = dict(hypotheses(vary))
    points = (
        telling(setup, observed, everything["documented"])
        if "threshold" in vary
        else sample(setup, observed)
    )
    result["points"] = len(points.b)
    if setup.offset % 4 == 0 and setup.offset < 2**34:
        result["numpy"] = against_numpy(setup, observed)
    kept = points.kept > 0
    generator = torch.Generator(kept.device).manual_seed(0)
    weights = torch.rand(kept.shape, generator=generator, dtype=torch.float64, device=kept.device)
    fractions: dict[float, tuple[float, list[str]]] = {}
    for name, by in everything.items():
        guess = bits(points, by) <= by["threshold"](setup.p)
        right = (guess == kept).double().mean()
        # A sum of random weights tells predictions apart; one transfer brings both numbers.
        same, fraction = torch.stack([(weights * guess).sum(), right]).tolist()
        fractions.setdefault(same, (round(fraction, 6), []))[1].append(name)
    (documented, _), *others = fractions.values()
    best = sorted(others, key=lambda item: -item[0])[:4]
    return result | {"documented": documented} | {label(names): value for value, names in best}


def telling(setup: Setup, observed: Observed, by: dict[str, Callable[..., Any]]) -> Points:
    """All places whose bits lie between the thresholds that are in question."""
    limits = [function(setup.p) for function in THRESHOLDS.values()]
    parts = []
    for b, seen in enumerate(observed):
        h, i, j = (seen >= 0).nonzero(as_tuple=True)
        x = Points(setup, torch.full_like(h, b), h, i, j, seen[h, i, j].long())
        value = bits(x, by)
        chosen = (value > min(limits)) & (value <= max(limits))
        parts.append(torch.stack([x.b, h, i, j, x.kept])[:, chosen])
    return Points(setup, *torch.cat(parts, 1))


def label(names: list[str]) -> str:
    """The simplest of hypotheses that cannot be told apart here, and how many others there are."""
    return names[0] if len(names) == 1 else f"{names[0]} (or {len(names) - 1} more)"


@lru_cache(maxsize=1)
def numpy_mask(*arguments: Any) -> Any:
    return keep_mask(*arguments)


def against_numpy(setup: Setup, observed: Observed) -> float:
    call = (setup.p, setup.batch, setup.heads, setup.sq, setup.skv)
    mask = numpy_mask(setup.seed, setup.offset, *call)
    agree = total = 0
    for b, part in enumerate(observed):
        seen = part.cpu().numpy()
        expected = mask[b, :, : seen.shape[1], : seen.shape[2]]
        agree += int(((seen == expected) & (seen >= 0)).sum())
        total += int((seen >= 0).sum())
    return round(agree / total, 8)
