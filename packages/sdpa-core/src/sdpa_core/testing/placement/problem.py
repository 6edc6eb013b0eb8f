"""The problem that a placed case poses."""

from __future__ import annotations

from collections.abc import Sequence

from ...dtypes import DType
from ...logits import ScoreMod
from ...paged import Paged
from ...problem import AttentionProblem
from ...ragged import Packed, packed_spec
from ...tensor import TensorSpec
from ..case import Case
from ..layouts import bias_view, views
from ..packing import Packing
from .function import traced
from .placed import spec_of


def problem_of(
    case: Case,
    *,
    training: bool = False,
    return_lse: bool = False,
    return_max_logit: bool = False,
    deterministic: bool = False,
) -> AttentionProblem:
    """The problem of a case whose operands are placed as its layout says.

    A mask is a bias of the query's type.
    """
    query, key, value = (spec_of(view, case.dtype) for view in views(case))
    packing_q, packing_kv = case.packings
    paged = _paged(case)
    if paged is not None:
        key, value = (_with_heads_first(pool) for pool in (key, value))
    return AttentionProblem.of(
        _described(query, packing_q),
        _described(key, packing_kv),
        _described(value, packing_kv),
        band=case.band,
        bias=_bias_spec(case),
        alibi=case.alibi == "standard",
        alibi_slopes=_slopes_spec(case),
        softmax=case.softmax,
        softcap=case.softcap,
        score_mod=_score_mod(case),
        dropout_p=case.dropout_p,
        seq_lens_q=case.seq_lens_q is not None,
        seq_lens_kv=case.seq_lens_kv is not None,
        packed_q=_side(packing_q),
        packed_kv=_side(packing_kv),
        paged=paged,
        training=training,
        return_lse=return_lse,
        return_max_logit=return_max_logit,
        deterministic=deterministic,
        bias_grad=case.bias is not None and case.bias_grad,
        sink_grad=True,
    )


def _described(spec: TensorSpec, packing: Packing | None) -> TensorSpec:
    if packing is None:
        return spec
    return packed_spec(
        spec.shape,
        spec.strides,
        spec.dtype,
        batch=len(packing.lengths),
        max_tokens=packing.padded,
        alignment=spec.alignment,
    )


def _side(packing: Packing | None) -> Packed | None:
    if packing is None:
        return None
    return Packed(packing.tokens, gaps=packing.cu_seqlens_padded is not None)


def _with_heads_first(pool: TensorSpec) -> TensorSpec:
    """``[pages, page_size, H, D]`` as ``[pages, H, page_size, D]``."""
    return TensorSpec(_swapped(pool.shape), _swapped(pool.strides), pool.dtype, pool.alignment)


def _swapped(axes: Sequence[int]) -> tuple[int, ...]:
    pages, tokens, heads, head_dim = axes
    return pages, heads, tokens, head_dim


def _paged(case: Case) -> Paged | None:
    if case.page_size is None:
        return None
    pages = -(-case.tokens_kv // case.page_size)
    table = TensorSpec.dense((case.batch, pages), DType.INT32)
    return Paged(table, table, pages * case.page_size)


def _bias_spec(case: Case) -> TensorSpec | None:
    if case.bias is not None:
        return spec_of(bias_view(case, case.bias), case.effective_bias_dtype)
    if case.mask is not None:
        return TensorSpec.dense(case.shape_of(case.mask), case.dtype)
    return None


def _slopes_spec(case: Case) -> TensorSpec | None:
    if case.alibi in {None, "standard"}:
        return None
    batch = case.batch if case.alibi == "batch_head" else 1
    return TensorSpec.dense((batch, case.heads, 1, 1), DType.FLOAT32)


def _score_mod(case: Case) -> ScoreMod | None:
    function = case.score_mod_case
    if function is None:
        return None
    return traced(function, (case.batch, case.heads, case.tokens_q, case.tokens_kv))
