"""Names of the tensors that go into attention and come out of it, in the order of calls.

They are the caller's tensors. What a graph makes of them has cuDNN's own name for it: the operand
``seq_len_q`` holds ``seq_lens_q``, or the differences of ``cu_seqlens_q``, one entry for each
sequence that the plan declares (``cudnn.uids``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .softmax import Softmax

if TYPE_CHECKING:
    from .problem import AttentionProblem


def inputs(problem: AttentionProblem) -> tuple[str, ...]:
    """What a forward pass takes.

    ``cu_seqlens_q_padded`` and ``cu_seqlens_kv_padded`` say where packed sequences with gaps
    start; ``score_mod_0``, ... are the auxiliary tensors of ``score_mod``.
    """
    packed_q, packed_kv = problem.packed_q, problem.packed_kv
    paged, score_mod = problem.paged is not None, problem.score_mod
    optional = {
        "bias": problem.bias is not None,
        "alibi_slopes": problem.alibi_slopes is not None,
        "sink": problem.softmax is Softmax.LEARNABLE,
        "seq_lens_q": problem.seq_lens_q,
        "seq_lens_kv": problem.seq_lens_kv,
        "cu_seqlens_q": packed_q is not None,
        "cu_seqlens_kv": packed_kv is not None,
        "cu_seqlens_q_padded": packed_q is not None and packed_q.gaps,
        "cu_seqlens_kv_padded": packed_kv is not None and packed_kv.gaps,
        "page_table_k": paged,
        "page_table_v": paged,
        "dropout_seed": problem.dropout_p > 0,
        "dropout_offset": problem.dropout_p > 0,
    }
    auxiliary = len(score_mod.tensors) if score_mod else 0
    return (
        *("query", "key", "value"),
        *_given(optional),
        *(f"score_mod_{i}" for i in range(auxiliary)),
    )


def results(problem: AttentionProblem) -> tuple[str, ...]:
    """What a forward pass gives."""
    wanted = {"stats": problem.needs_stats, "max_logit": problem.return_max_logit}
    return ("output", *_given(wanted))


def gradients(problem: AttentionProblem) -> tuple[str, ...]:
    """What a backward pass gives. It takes ``inputs``, ``output``, ``stats``, ``grad_output``."""
    wanted = {"grad_bias": problem.bias_grad, "grad_sink": problem.sink_grad}
    return ("grad_query", "grad_key", "grad_value", *_given(wanted))


def _given(optional: dict[str, bool]) -> tuple[str, ...]:
    return tuple(name for name, given in optional.items() if given)
