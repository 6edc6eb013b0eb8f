"""How many values are wrong, or differ from run to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Count:
    """``wrong`` of ``total`` values."""

    wrong: int
    total: int

    def __str__(self) -> str:
        return f"{self.wrong} of {self.total}"


Counts = Mapping[str, Count]

_BITS = {2: torch.int16, 4: torch.int32}


def wrong(got: Mapping[str, Tensor], want: Mapping[str, Tensor]) -> Counts:
    """Of each result in ``want``, what 16-bit arithmetic does not explain.

    A value may be off by 5% and a fifth of the root mean square of its tensor (errors of bfloat16
    are below half of that), a log-sum-exp, which is computed in float32, by 1e-3 and 0.01.
    """
    return {name: _wrong(name, got[name].double(), one.double()) for name, one in want.items()}


def _wrong(name: str, got: Tensor, want: Tensor) -> Count:
    finite = want[want.isfinite()]
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    relative, absolute = (1e-3, 0.01) if name == "LSE" else (0.05, 0.2 * size + 1e-3)
    near = (got - want).abs() <= absolute + relative * want.abs()  # False for NaN
    right = (got == want) | near & want.isfinite()
    return Count(int((~right).sum()), want.numel())


def differing(
    run: Callable[[], None], results: Mapping[str, Tensor], runs: int
) -> tuple[Counts, int]:
    """Values that are not the same in every run, and in how many runs any of them was another."""
    run()
    first = {name: _bits(one).clone() for name, one in results.items()}
    changed = {name: torch.zeros_like(bits, dtype=torch.bool) for name, bits in first.items()}
    runs_that_differ = torch.zeros((), dtype=torch.int64, device=next(iter(first.values())).device)
    for _ in range(runs):
        run()
        here = {name: _bits(results[name]) != first[name] for name in first}
        for name, one in here.items():
            changed[name] |= one
        runs_that_differ += torch.stack([one.any() for one in here.values()]).any()
    counts = {name: Count(int(one.sum()), one.numel()) for name, one in changed.items()}
    return counts, int(runs_that_differ)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_BITS[tensor.element_size()])


def any_wrong(counts: Counts) -> bool:
    return any(count.wrong for count in counts.values())


def words(counts: Counts) -> str:
    """``dQ 12 of 512, dK 3 of 64``; "nothing" where all is right."""
    return (
        ", ".join(f"{name} {count}" for name, count in counts.items() if count.wrong) or "nothing"
    )
