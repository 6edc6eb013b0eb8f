"""Options of the command line that describe an attention problem."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from ..dtypes import DType
from ..mask import Alignment
from ..softmax import Softmax
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
    add("--v-dim", type=values.length, metavar="D", help="head_dim of the value; default the key's")
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
