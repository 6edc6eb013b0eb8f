"""What running a problem with cuDNN takes besides the kernel: copies, and ways round faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..cudnn.dimensions import declared, pads_query
from ..cudnn.known_bad import Remedy, faults
from ..device import DeviceSpec
from ..problem import AttentionProblem, Direction


def notes(
    problem: AttentionProblem,
    device: DeviceSpec,
    directions: Iterable[Direction] = tuple(Direction),
) -> tuple[str, ...]:
    """What running a problem with cuDNN takes besides the kernel: copies, and ways round faults.

    Args:
        directions: those that cuDNN runs; the backward pass counts only if there is one.
    """
    directions = tuple(directions)
    told: list[str] = [*_copies(problem), *_cleared(problem, directions)]
    for direction in directions:
        if direction is Direction.BACKWARD and not problem.training:
            continue
        for row in faults(declared(problem, device, direction), device, direction):
            if row.remedy is not Remedy.REFUSE:
                done = _REMEDIES[row.remedy]
                told.append(f"{direction}: {done}, because of a fault: {row.name}")
    return tuple(dict.fromkeys(told))


_REMEDIES: Mapping[Remedy, str] = {
    Remedy.FULL_LENGTHS: "cuDNN is given the full length of every sequence",
    Remedy.WHOLE_KEYS: "only plans that do not split the keys are used",
    Remedy.FIX_EMPTY: "the results of sequences without keys are written once more",
}


def _copies(problem: AttentionProblem) -> Iterator[str]:
    """A problem does not tell masks from biases, but a mask is of the query's type once made."""
    bias = problem.bias
    if bias is not None and bias.dtype == problem.query.dtype and not problem.bias_grad:
        yield (
            f"bias: where the caller gave a boolean mask, a bias of 0 and -inf is made of it, "
            f"{bias.nbytes:,} bytes each call; numbers are taken as they are"
        )
    if pads_query(problem):
        yield "query: copied with a second row, which a sink needs"


def _cleared(problem: AttentionProblem, directions: tuple[Direction, ...]) -> Iterator[str]:
    """Dense operands with lengths; neither packed operands nor pages are copied."""
    copies = []
    if problem.seq_lens_kv and problem.packed_kv is None and problem.paged is None:
        copies.append(("key, value", problem.key.nbytes + problem.value.nbytes, "each pass"))
    is_trained = problem.training and Direction.BACKWARD in directions
    if problem.seq_lens_q and problem.packed_q is None and is_trained:
        size = problem.query.nbytes + problem.output.nbytes
        copies.append(("query, grad_output", size, "in the backward pass"))
    for names, size, when in copies:
        yield (
            f"{names}: rows past a sequence's length are zeroed in copies, {size:,} bytes {when}; "
            f"slack_is_finite=True saves them"
        )
