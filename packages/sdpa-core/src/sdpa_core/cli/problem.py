"""Options that describe an attention problem, and the problem they describe."""

from __future__ import annotations

import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import replace

from ..dtypes import DType
from ..layout import Shape, dense_in_order
from ..mask import Alignment, Band
from ..paged import Paged
from ..problem import AttentionProblem, Softmax
from ..ragged import Packed, packed_spec
from ..tensor import TensorSpec
from ..validate import check_operands
from . import values

#: Axes of [batch, heads, tokens, head_dim] in memory, outermost first.
LAYOUTS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}


def add_arguments(parser: ArgumentParser) -> None:
    """Options for every feature of a problem; shapes are [batch, heads, tokens, head_dim]."""
    _add_operands(parser)
    _add_features(parser)
    _add_sequences(parser)
    _add_results(parser)


def _add_operands(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("operands")
    add = group.add_argument
    add("--dtype", type=values.dtype, default=DType.BFLOAT16, help="default bf16")
    add("--q", type=values.shape, required=True, metavar="B,H,S,D", help="shape of the query")
    add("--kv", type=values.shape, metavar="B,H,S,D", help="shape of the key; default the query's")
    add("--v-dim", type=int, metavar="D", help="head_dim of the value; default the key's")
    add("--layout", choices=LAYOUTS, default="bhsd", help="order of the axes in memory")


def _add_features(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("features")
    add = group.add_argument
    add(
        "--causal",
        nargs="?",
        const=Alignment.TOP_LEFT,
        type=values.alignment,
        metavar="|".join(Alignment),
        help="default top_left",
    )
    add("--window", type=values.window, metavar="L,R[:CORNER]", help="tokens, or inf; inclusive")
    add("--bias", type=values.bias, metavar="SHAPE[:DTYPE]", help="bool: a mask, True is visible")
    add("--bias-grad", action="store_true", help="the bias has a gradient")
    add("--alibi", action="store_true", help="ALiBi with the standard slopes")
    add("--alibi-slopes", nargs="?", const="h", choices=("h", "bh"), help="given for each head")
    add("--softmax", type=_softmax, default=Softmax.VANILLA, metavar="|".join(Softmax))
    add("--sink-grad", action="store_true", help="the learnable sink has a gradient")
    add("--softcap", type=float, metavar="CAP")
    add("--dropout", type=float, default=0.0, metavar="P")


def _add_sequences(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("sequences")
    add = group.add_argument
    add("--seq-lens-q", action="store_true", help="each sequence has a length of its own")
    add("--seq-lens-kv", action="store_true", help="likewise")
    add("--packed", type=values.packed, action="append", default=[], metavar="q|kv|both[:ROWS]")
    add("--gaps", action="store_true", help="packed sequences have gaps between them")
    add("--page-size", type=values.count, metavar="TOKENS", help="key and value are paged")


def _add_results(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    add = group.add_argument
    add("--training", action="store_true", help="a backward pass follows")
    add("--lse", action="store_true", help="return the log-sum-exp")
    add("--max-logit", action="store_true", help="return each head's largest logit")
    add("--deterministic", action="store_true", help="gradients equal from run to run")


def _softmax(text: str) -> Softmax:
    try:
        return Softmax(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r}; expected one of {', '.join(Softmax)}") from None


def problem(given: Namespace) -> AttentionProblem:
    """The problem that the options describe.

    Raises:
        TypeError: a dtype is none that attention takes.
        ValueError: shapes or options do not fit together.
    """
    _check_options(given)
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


def _check_options(given: Namespace) -> None:
    """What cannot be said together, or of a value that is out of range."""
    sides = [name for side in given.packed for name in side.names]
    is_mask = given.bias is not None and given.bias.dtype is DType.BOOL
    mistakes = {
        "--bias-grad needs --bias and --training": given.bias_grad
        and not (given.bias and given.training),
        "--bias-grad needs a bias that is no boolean mask": given.bias_grad and is_mask,
        "--sink-grad needs --softmax learnable and --training": given.sink_grad
        and not (given.softmax is Softmax.LEARNABLE and given.training),
        "--alibi takes the standard slopes, --alibi-slopes others; give one of them": given.alibi
        and given.alibi_slopes,
        "--packed names a side twice": len(sides) > len(set(sides)),
        "--gaps needs --packed": given.gaps and not sides,
        "--packed says the lengths of the queries; --seq-lens-q is for dense ones": given.seq_lens_q
        and "q" in sides,
        "--packed says the lengths of the keys; --seq-lens-kv is for dense ones": given.seq_lens_kv
        and "kv" in sides,
        "--page-size and --packed kv exclude each other": given.page_size and "kv" in sides,
        "--layout is for dense operands, and all are packed": given.layout != "bhsd"
        and len(set(sides)) == 2,
        f"--v-dim = {given.v_dim}; expected 0 or more": (given.v_dim or 0) < 0,
        f"--dropout = {given.dropout}; expected a number in [0, 1)": not 0 <= given.dropout < 1,
        f"--softcap = {given.softcap}; expected a positive finite number": given.softcap is not None
        and not 0 < given.softcap < math.inf,
    }
    for text, made in mistakes.items():
        if made:
            raise ValueError(text)


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
