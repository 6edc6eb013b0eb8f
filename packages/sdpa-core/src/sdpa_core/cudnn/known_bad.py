"""Faults of released cuDNN versions, as data: what is wrong, where it was seen, what we do.

A row stays until a newer cuDNN was shown or said by its makers to be right; that version then ends
it. Each row names its source.

Not here, because our graphs never meet it: on compute capability 12.x the gradients of packed
sequences are wrong if cuDNN is told how many keys there are in all (TransformerEngine issue 3333;
``options.direction_options``); a NaN in key or value rows past a sequence's length reaches its
results (the adapters clear those rows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..device import DeviceSpec
from ..mask import Alignment
from ..problem import AttentionProblem, Direction


class Remedy(StrEnum):
    #: Refuse the problem.
    REFUSE = "refuse"
    #: Give cuDNN full sequence lengths, which takes another kernel path and hides nothing.
    FULL_LENGTHS = "full lengths"
    #: Choose among cuDNN's plans that need next to no workspace.
    NO_WORKSPACE = "no workspace"
    #: Write the results of sequences without keys once more, after the kernel.
    FIX_EMPTY = "fix empty"


@dataclass(frozen=True, slots=True)
class KnownBad:
    """One fault.

    Attributes:
        name: short, for reports.
        first: the first cuDNN affected; None: every older one is.
        fixed: the first cuDNN without the fault; None: none is known. A device whose cuDNN is not
            known counts as affected.
        applies: whether a problem meets the fault.
        remedy: what we do.
        source: where it was reported or measured.
        change: what a caller can do about a problem that is refused, besides a newer cuDNN.
    """

    name: str
    first: int | None
    fixed: int | None
    applies: Callable[[AttentionProblem, DeviceSpec, Direction], bool]
    remedy: Remedy
    source: str
    change: str = ""

    @property
    def affects_all(self) -> bool:
        """Whether no version is known to be without the fault."""
        return self.first is None and self.fixed is None

    def affects(self, version: int | None) -> bool:
        if version is None:
            return True
        return (self.first or 0) <= version and (self.fixed is None or version < self.fixed)


def _half_empty_key_tile(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    backward = direction is Direction.BACKWARD
    unmasked = p.band.is_full and not p.has_lengths and not p.is_flex
    return backward and unmasked and p.tokens_kv % 128 == 64


def _partial_key_tile(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    unmasked = not p.has_lengths and not p.is_flex
    return direction is Direction.BACKWARD and unmasked and p.tokens_kv % 128 != 0


def _window(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return p.band.left is not None and p.band.right != 0 and p.tokens_kv > 1024


def _merged_statistics(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    forward = direction is Direction.FORWARD
    return forward and p.deterministic and p.is_decode and p.needs_stats


def _keyless_sequences(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return p.seq_lens_kv or p.packed_kv is not None


def _packed_on_hopper(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.is_packed and device.sm // 10 == 9


def _packed_sink_grad(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.is_packed and p.sink_grad


def _packed_alibi(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.deterministic and p.is_packed and p.alibi


def _causal_with_more_keys(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return device.sm == 103 and p.band.right is not None and p.tokens_kv > p.tokens_q


def _pages_on_ada(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return device.sm == 89 and p.paged is not None


def _deterministic_sink_grad(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.deterministic and p.sink_grad


def _bias_grad_of_function(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.bias_grad and p.is_flex


ROWS = (
    KnownBad(
        "the gradient of a bias beside softcap, score_mod or slopes was not checked on a GPU",
        first=None,
        fixed=None,
        applies=_bias_grad_of_function,
        remedy=Remedy.REFUSE,
        source="docs/decisions.md, 2026-12-01",
        change="a bias without a gradient",
    ),
    KnownBad(
        "the gradient of a sink differs from run to run, deterministic or not",
        first=None,
        fixed=None,
        applies=_deterministic_sink_grad,
        remedy=Remedy.REFUSE,
        source="H200, cuDNN 9.19: six cases, of which the other gradients did not differ; refused "
        "by TransformerEngine too",
        change="deterministic=False, or a sink without a gradient",
    ),
    KnownBad(
        "dQ is NaN where the last key tile of 128 is half empty and LSE < -88.7",
        first=None,
        fixed=None,
        applies=_half_empty_key_tile,
        remedy=Remedy.FULL_LENGTHS,
        source="pytorch issue 196678; H200, cuDNN 9.19: any query length, head_dim 64 to 256, "
        "only without a band or lengths",
    ),
    KnownBad(
        "illegal memory access in a captured backward pass with a partial key tile",
        first=None,
        fixed=91501,
        applies=_partial_key_tile,
        remedy=Remedy.FULL_LENGTHS,
        source="TransformerEngine PR 2344, cuDNN <= 9.15.0",
    ),
    KnownBad(
        "log-sum-exp of a single query differs from run to run where its keys are split",
        first=None,
        fixed=None,
        applies=_merged_statistics,
        remedy=Remedy.NO_WORKSPACE,
        source="H200, cuDNN 9.19, engine 8 with k24=35: 5 of 128 values in 200 runs, the output "
        "never; the plan carries no note. Its sibling without workspace is 5% slower and exact",
    ),
    KnownBad(
        "results of a sequence without keys are NaN",
        first=None,
        fixed=92500,
        applies=_keyless_sequences,
        remedy=Remedy.FIX_EMPTY,
        source="cudnn-frontend issue 943; H200, cuDNN 9.19: output, log-sum-exp, dK and dV",
    ),
    KnownBad(
        "non-causal sliding window over more than 1024 keys gives NaN",
        first=91400,
        fixed=91401,
        applies=_window,
        remedy=Remedy.REFUSE,
        source="TransformerEngine PR 2344; cudnn-frontend refuses it too",
    ),
    KnownBad(
        "gradients of packed sequences are NaN: a workspace is not initialized",
        first=None,
        fixed=91800,
        applies=_packed_on_hopper,
        remedy=Remedy.REFUSE,
        source="TransformerEngine issue 2186",
    ),
    KnownBad(
        "the sink's gradient of packed sequences: the log-sum-exp is read as if dense",
        first=None,
        fixed=92600,
        applies=_packed_sink_grad,
        remedy=Remedy.REFUSE,
        source="TransformerEngine issue 3249, cudnn-frontend PR 630; 1.28 does not refuse it",
    ),
    KnownBad(
        "dQ of packed sequences with ALiBi differs from run to run, deterministic or not",
        first=None,
        fixed=None,
        applies=_packed_alibi,
        remedy=Remedy.REFUSE,
        source="H200, cuDNN 9.19: two of two tries through JAX; other versions are not known",
        change="deterministic=False",
    ),
    KnownBad(
        "causal attention with more keys than queries hangs",
        first=92100,
        fixed=92200,
        applies=_causal_with_more_keys,
        remedy=Remedy.REFUSE,
        source="TransformerEngine issue 3285, cuDNN 9.21 on compute capability 10.3, long keys; "
        "from which length on is not said",
    ),
    KnownBad(
        "wrong results with a cache of keys on compute capability 8.9",
        first=None,
        fixed=None,
        applies=_pages_on_ada,
        remedy=Remedy.REFUSE,
        source="TransformerEngine PR 1776, whose selection still leaves it out",
        change="gather the pages and call varlen_attention",
    ),
)


def faults(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> Iterator[KnownBad]:
    """The rows that this problem meets on this device."""
    for row in ROWS:
        if row.affects(device.cudnn_version) and row.applies(problem, device, direction):
            yield row


def workspace_limit(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> int | None:
    """Bytes of workspace that a plan may use at most; None for any."""
    remedies = (row.remedy for row in faults(problem, device, direction))
    return _NEXT_TO_NOTHING if Remedy.NO_WORKSPACE in remedies else None


#: Some plans use a few hundred bytes for counters.
_NEXT_TO_NOTHING = 1024


def wants_full_lengths(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    """Whether the graph must be given sequence lengths although every sequence is full.

    Besides the faults: with more queries than keys cuDNN takes a band from the bottom right (whose
    rows that see no key then get O = 0 and LSE = -inf, as they should), or one with a left bound,
    only with lengths (cudnn-frontend 1.32, sdpa_support_surface.h).
    """
    from_bottom = problem.band.alignment is Alignment.BOTTOM_RIGHT
    more_queries = problem.band.left is not None and problem.tokens_q > problem.tokens_kv
    return (
        from_bottom
        or more_queries
        or any(row.remedy is Remedy.FULL_LENGTHS for row in faults(problem, device, direction))
    )
