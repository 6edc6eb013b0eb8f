"""The attention problem that the options of the command line describe."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

from ..dtypes import DType
from ..layout import Shape, dense_in_order
from ..mask import Alignment, Band
from ..paged import Paged
from ..problem import AttentionProblem
from ..ragged import Packed, packed_spec
from ..tensor import TensorSpec
from ..validate import check_operands
from . import mistakes
from .options import LAYOUTS
from .values import MOST


def problem(given: Namespace) -> AttentionProblem:
    """The problem that the options describe.

    Raises:
        TypeError: a dtype is none that attention takes.
        ValueError: shapes or options do not fit together.
    """
    mistakes.check(given)
    query, key, value = _operands(given)
    check_operands(query, key, value)
    packed = {side: _packed(given, side, spec) for side, spec in (("q", query), ("kv", key))}
    paged = _paged(given, query, key) if given.page_size else None
    if packed["q"]:
        query = _packed_spec(query, packed["q"])
    if packed["kv"]:
        key, value = (_packed_spec(spec, packed["kv"]) for spec in (key, value))
    if given.page_size:
        key, value = (_pool(spec, given.page_size) for spec in (key, value))
    tokens_kv = paged.tokens if paged else key.shape[2]
    return AttentionProblem.of(
        query,
        key,
        value,
        band=_band(given),
        bias=_bias(given, (*query.shape[:3], tokens_kv)),
        alibi=given.alibi,
        alibi_slopes=_slopes(given, query.shape),
        softmax=given.softmax,
        softcap=given.softcap,
        dropout_p=given.dropout,
        seq_lens_q=given.seq_lens_q,
        seq_lens_kv=given.seq_lens_kv,
        packed_q=packed["q"],
        packed_kv=packed["kv"],
        paged=paged,
        training=given.training,
        return_lse=given.lse,
        return_max_logit=given.max_logit,
        deterministic=given.deterministic,
        bias_grad=given.bias_grad,
        sink_grad=given.sink_grad,
    )


def _operands(given: Namespace) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    kv = given.kv or given.q
    value = kv if given.v_dim is None else (*kv[:-1], given.v_dim)
    order = LAYOUTS[given.layout]
    query, key, value = (
        TensorSpec(shape, dense_in_order(shape, order), given.dtype)
        if len(shape) == 4
        else TensorSpec.dense(shape, given.dtype)
        for shape in (given.q, kv, value)
    )
    return query, key, value


def _band(given: Namespace) -> Band:
    if given.window is None:
        return Band() if given.causal is None else Band.causal(given.causal)
    left, right, corner = given.window.left, given.window.right, given.window.alignment
    if given.causal is None:
        return Band(left, right, corner or Alignment.TOP_LEFT)
    if right not in (None, 0):
        raise ValueError(f"--window has right bound {right}; with --causal it is 0 or inf")
    if corner not in (None, given.causal):
        raise ValueError(f"--window is aligned {corner}, --causal {given.causal}")
    return Band(left, 0, given.causal)


def _bias(given: Namespace, logits: Shape) -> TensorSpec | None:
    if given.bias is None:
        return None
    shape = (1,) * (4 - len(given.bias.shape)) + given.bias.shape
    fits = [have in (1, wanted) for have, wanted in zip(shape, logits, strict=False)]
    if len(shape) != 4 or not all(fits) or shape[3] != logits[3]:
        raise ValueError(
            f"--bias has shape {list(given.bias.shape)}; expected the logits' {list(logits)}, "
            f"any axis but the last also 1"
        )
    wanted = given.bias.dtype or given.dtype
    return TensorSpec.dense(shape, given.dtype if wanted is DType.BOOL else wanted)


def _slopes(given: Namespace, query: Shape) -> TensorSpec | None:
    if given.alibi_slopes is None:
        return None
    batch = query[0] if given.alibi_slopes == "bh" else 1
    return TensorSpec.dense((batch, query[1], 1, 1), DType.FLOAT32)


def _packed(given: Namespace, name: str, spec: TensorSpec) -> Packed | None:
    batch, _, tokens, _ = spec.shape
    for side in given.packed:
        if name in side.names:
            rows = batch * tokens if side.tokens is None else side.tokens
            if rows > MOST:
                raise ValueError(
                    f"--packed {name} has {rows} rows, a batch of {batch} sequences of {tokens} "
                    f"tokens; expected at most {MOST}, or the rows that there are: {name}:20000"
                )
            return Packed(rows, gaps=given.gaps)
    return None


def _packed_spec(spec: TensorSpec, packed: Packed) -> TensorSpec:
    batch, heads, longest, head_dim = spec.shape
    rows = TensorSpec.dense((packed.tokens, heads, head_dim), spec.dtype)
    return packed_spec(rows.shape, rows.strides, spec.dtype, batch=batch, max_tokens=longest)


def _paged(given: Namespace, query: TensorSpec, key: TensorSpec) -> Paged:
    tokens = key.shape[2]
    table = TensorSpec.dense((query.shape[0], -(-tokens // given.page_size)), DType.INT32)
    return Paged(table, table, tokens)


def _pool(spec: TensorSpec, page_size: int) -> TensorSpec:
    """As many pages as the sequences fill, [pages, page size, heads, head_dim] in memory."""
    batch, heads, tokens, head_dim = spec.shape
    shape = (batch * -(-tokens // page_size), heads, page_size, head_dim)
    return replace(spec, shape=shape, strides=dense_in_order(shape, LAYOUTS["bshd"]))
