"""From torch's descriptions of the operands to the core's problem."""

from __future__ import annotations

import torch

from sdpa_core import AttentionProblem, TensorSpec, check_operands
from sdpa_core.layout import dense_like, row_major
from sdpa_core.paged import Paged
from sdpa_core.ragged import Packed, packed_spec

from .convert import dtype_of
from .features import OPERANDS, Features

#: Shape, strides and element type of an operand: what calls are prepared for.
Raw = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

#: Features, training, return_lse, deterministic, and the operands besides query, key and value
#: whose gradients are wanted.
Options = tuple[Features, bool, bool, bool, tuple[str, ...]]


def problem_of(operands: tuple[Raw, ...], options: Options) -> AttentionProblem:
    """The problem of operands named by the features' roles, checked.

    Raises:
        TypeError, ValueError: query, key and value do not fit together.
    """
    features, training, return_lse, deterministic, gradients = options
    query, key, value = specs(operands, features)
    if features.roles == OPERANDS:
        return AttentionProblem.of(
            query,
            key,
            value,
            band=features.band,
            alibi=features.alibi,
            softmax=features.softmax,
            softcap=features.softcap,
            score_mod=features.score_mod,
            training=training,
            return_lse=return_lse,
            return_max_logit=features.return_max_logit,
            deterministic=deterministic,
        )
    named = dict(zip(features.roles, operands, strict=True))
    paged = _paged(named) if features.is_paged else None
    if paged is not None:
        key, value = _pool(named["key"]), _pool(named["value"])
    return AttentionProblem.of(
        query,
        key,
        value,
        band=features.band,
        bias=_spec("bias", named),
        alibi=features.alibi,
        alibi_slopes=_spec("alibi_slopes", named),
        softmax=features.softmax,
        softcap=features.softcap,
        score_mod=features.score_mod,
        dropout_p=features.dropout_p,
        seq_lens_q=features.has("seq_lens_q"),
        seq_lens_kv=features.has("seq_lens_kv"),
        packed_q=_packed("q", named, "query"),
        packed_kv=_packed("kv", named, "key"),
        paged=paged,
        training=training,
        return_lse=return_lse,
        return_max_logit=features.return_max_logit,
        deterministic=deterministic,
        bias_grad="bias" in gradients,
        sink_grad="sink" in gradients,
    )


def specs(
    operands: tuple[Raw, ...], features: Features
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Query, key and value as ``[B, H, S, D]``, checked; pages as if they were contiguous."""
    named = dict(zip(features.roles, operands, strict=True))
    query = _dense("query", named, "q", features.max_q)
    key = _dense("key", named, "kv", features.max_kv)
    value = _dense("value", named, "kv", features.max_kv)
    check_operands(query, key, value)
    return query, key, value


def _dense(name: str, named: dict[str, Raw], side: str, longest: int | None) -> TensorSpec:
    shape, strides, dtype = named[name]
    if longest is not None:
        batch = named[f"cu_seqlens_{side}"][0][0] - 1
        given = dtype_of(name, dtype)
        return packed_spec(tuple(shape), tuple(strides), given, batch=batch, max_tokens=longest)
    if side == "kv" and "page_table_k" in named:
        table = named["page_table_k" if name == "key" else "page_table_v"][0]
        _, heads, size, head_dim = shape
        shape = (table[0], heads, table[1] * size, head_dim)
        return TensorSpec.dense(shape, dtype_of(name, dtype))
    return TensorSpec(tuple(shape), tuple(strides), dtype_of(name, dtype))


def _pool(raw: Raw) -> TensorSpec:
    shape, strides, dtype = raw
    return TensorSpec(tuple(shape), tuple(strides), dtype_of("key", dtype))


def _spec(name: str, named: dict[str, Raw]) -> TensorSpec | None:
    if name not in named:
        return None
    shape, strides, dtype = named[name]
    return TensorSpec(tuple(shape), tuple(strides), dtype_of(name, dtype))


def _packed(side: str, named: dict[str, Raw], operand: str) -> Packed | None:
    if f"cu_seqlens_{side}" not in named:
        return None
    return Packed(named[operand][0][0], gaps=f"cu_seqlens_{side}_padded" in named)


def _paged(named: dict[str, Raw]) -> Paged:
    key_table, value_table = _spec("page_table_k", named), _spec("page_table_v", named)
    assert key_table is not None
    assert value_table is not None
    page_size = named["key"][0][2]
    return Paged(key_table, value_table, key_table.shape[1] * page_size)


def as_read(operands: tuple[Raw, ...], features: Features) -> tuple[Raw, ...]:
    """The operands as native code reads them.

    Dense keys and values with lengths are read from copies whose slack is cleared, see
    ``cudnn.slack``.
    """
    in_place = features.is_paged or features.max_kv is not None
    if features.slack_is_finite or in_place or not features.has("seq_lens_kv"):
        return operands
    query, *pair = operands[:3]
    copies = ((shape, dense_like(shape, shape, strides), t) for shape, strides, t in pair)
    return (query, *copies, *operands[3:])


def traced(tensors: tuple[torch.Tensor, ...]) -> tuple[Raw, ...]:
    """Descriptions of tensors that have no memory of their own: as if dense."""
    return tuple((tuple(t.shape), row_major(t.shape), t.dtype) for t in tensors)
