"""The dimensions that a plan declares, where they differ from those of the problem.

One plan may serve many problems: packed sequences are declared in buckets (``ragged``), and what
is declared enters the plan's key. Operands keep their real strides.
"""

from __future__ import annotations

from dataclasses import replace

from ..device import DeviceSpec
from ..problem import AttentionProblem, Direction, Softmax
from ..ragged import Packed, batch_bucket, has_buckets, token_bucket
from ..tensor import TensorSpec

#: The first cuDNN that takes cumulative lengths as they are, in the forward pass.
CUMULATIVE_SINCE = 92400


def declared(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> AttentionProblem:
    """The problem whose shapes a plan for ``problem`` declares."""
    problem = problem.for_direction(direction)
    if pads_query(problem):
        problem = _with_rows(problem, 2)
    if problem.is_packed:
        problem = _with_total_tokens_in_buckets(problem)
        if has_buckets(device):
            return _in_buckets(problem, device, direction)
    return problem


def pads_query(problem: AttentionProblem) -> bool:
    """Whether a single query is declared as two, the second of which is ignored.

    The frontend refuses a sink with one query (cudnn-frontend 1.32, sdpa.h).
    """
    dense = problem.packed_q is None
    return dense and problem.tokens_q == 1 and problem.softmax is not Softmax.VANILLA


def takes_cumulative_lengths(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> bool:
    """Whether the graph takes ``cu_seqlens`` as they are, instead of lengths and offsets.

    Only the forward operation does, both sides alike, and neither with dropout (which takes the
    composite implementation, cudnn-frontend sdpa.h) nor in functions of the logits, which read
    lengths.
    """
    both = problem.packed_q is not None and problem.packed_kv is not None and not problem.is_flex
    recent = device.cudnn_version is not None and device.cudnn_version >= CUMULATIVE_SINCE
    return direction is Direction.FORWARD and both and recent and problem.dropout_p == 0


def has_packed_stats(problem: AttentionProblem, device: DeviceSpec) -> bool:
    """Whether statistics are ``[tokens, Hq, 1]`` like the packed query, not ``[B, Hq, Sq, 1]``."""
    return problem.packed_q is not None and has_buckets(device)


def _with_total_tokens_in_buckets(problem: AttentionProblem) -> AttentionProblem:
    """Rows of packed tensors are no dimension of a graph; they bound the workspace, if anything.

    On compute capability 8.x and 12.x not even that (cudnn-frontend 1.32 ignores them there).
    """
    packed_q, packed_kv = problem.packed_q, problem.packed_kv
    return replace(
        problem,
        packed_q=packed_q and replace(packed_q, tokens=token_bucket(packed_q.tokens)),
        packed_kv=packed_kv and replace(packed_kv, tokens=token_bucket(packed_kv.tokens)),
    )


def _in_buckets(
    problem: AttentionProblem, device: DeviceSpec, direction: Direction
) -> AttentionProblem:
    cumulative = takes_cumulative_lengths(problem, device, direction)
    exact_batch = cumulative or _has_memory_by_sequence(problem)
    batch = problem.batch if exact_batch else batch_bucket(problem.batch)
    # A bias, or what a score_mod reads, has as many rows as the longest sequence has tokens; which
    # probabilities dropout keeps depends on the declared length (``philox``), and both directions
    # must agree; and a deterministic backward pass on compute capability 9.0 takes a workspace that
    # is quadratic in it (H200: 550 GB for 65536).
    has_rows = problem.bias is not None or bool(problem.score_mod and problem.score_mod.tensors)
    exact = has_rows or problem.dropout_p > 0 or problem.deterministic

    def on_side(spec: TensorSpec, packed: Packed | None) -> TensorSpec:
        _, heads, longest, head_dim = spec.shape
        if packed is None:
            return replace(spec, shape=(batch, heads, longest, head_dim))
        # Never one token: of packed single queries cuDNN writes the statistics of the first head of
        # each group only (cudnn-frontend issue 1083; also seen on an H200 with cuDNN 9.19).
        tokens = max(longest, 2) if exact else packed.tokens
        strides = (tokens * spec.strides[2], *spec.strides[1:])
        return replace(spec, shape=(batch, heads, tokens, head_dim), strides=strides)

    packed_q, packed_kv = problem.packed_q, problem.packed_kv
    given = problem.grad_output
    return replace(
        problem,
        query=on_side(problem.query, packed_q),
        key=problem.key if problem.paged else on_side(problem.key, packed_kv),
        value=problem.value if problem.paged else on_side(problem.value, packed_kv),
        output=on_side(problem.output, packed_q),
        grad_output=given and on_side(given, packed_q),
    )


def _has_memory_by_sequence(problem: AttentionProblem) -> bool:
    """Whether an operand has an entry for each sequence of the batch, and for no more.

    TransformerEngine declares such operands with the bucket's batch nevertheless, over memory that
    is smaller. Here the executor checks that what is declared is there.
    """
    dense_side = problem.packed_q is None or problem.packed_kv is None  # also page tables
    auxiliary = problem.score_mod.tensors if problem.score_mod else ()
    own = (problem.bias, problem.alibi_slopes, *auxiliary)
    return dense_side or any(spec is not None and spec.shape[0] > 1 for spec in own)


def _with_rows(problem: AttentionProblem, rows: int) -> AttentionProblem:
    batch, heads, _, head_dim = problem.query.shape
    query = TensorSpec.dense((batch, heads, rows, head_dim), problem.query.dtype)
    output = TensorSpec.dense((batch, heads, rows, problem.value.shape[3]), problem.query.dtype)
    return replace(problem, query=query, output=output, grad_output=None)
