"""One attention problem with data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np

from ..dtypes import DType
from ..mask import Band
from ..problem import Softmax
from ..validate import default_scale
from .logits import Array, Mask, visible_pairs
from .packing import Packing, Pages, paged
from .score_mods import SCORE_MODS, ScoreModCase

#: How query, key and value lie in memory.
#: ``bhsd``: row-major. ``bshd``, ``sbhd``: row-major in that order of axes. ``packed_qkv``,
#: ``qkv_h3d``: three views of one ``[B, S, 3, H, D]`` or ``[B, S, H, 3, D]``. ``kv_packed``,
#: ``kv_h2d``: key and value are two views of one ``[B, S, 2, H, D]`` or ``[B, S, H, 2, D]``.
#: ``unaligned``: row-major, one element past an aligned address. ``odd_rows``: ``[B, S, H, D]``
#: with one unused element after each token. ``expanded_kv``: key and value have one head in memory,
#: repeated with stride 0. Of packed sequences, the same without B, and ``bhsd`` is ``[T, H, D]``.
Layout = Literal[
    "bhsd",
    "bshd",
    "sbhd",
    "packed_qkv",
    "qkv_h3d",
    "kv_packed",
    "kv_h2d",
    "unaligned",
    "odd_rows",
    "expanded_kv",
]

#: What the logits look like.
#: ``normal``: normal deviates. ``very_negative``: all about -120, so that each LSE is below -88.7
#: and ``exp(-LSE)`` overflows in float32. ``large_positive``: all about 120, so that ``exp(S)``
#: does. ``zero_query``: all 0, so that the output is the mean of the visible values.
Logits = Literal["normal", "very_negative", "large_positive", "zero_query"]

#: Which axes of ``[B, Hq, Sq, Skv]`` a bias or mask has: 1 stands for a repeated one.
Axes = Literal["bhss", "1hss", "b1ss", "11ss", "111s", "b11s", "bh1s", "1h1s"]

#: What a bias holds. ``normal``: normal deviates. ``hides``: also -inf, in some rows everywhere.
#: ``lowest``: also the type's lowest finite number, in some rows everywhere. ``very_negative``:
#: about -120.
BiasValues = Literal["normal", "hides", "lowest", "very_negative"]

#: Size of the logits that are not normal.
LARGE_LOGIT = 120.0

#: How a bias lies in memory. ``dense``: row-major. ``transposed``: keys outermost of the last two
#: axes. ``padded_rows``: row-major, with 8 unused elements after each row.
BiasLayout = Literal["dense", "transposed", "padded_rows"]

_LARGE = 512
_MANY = 1000


class Inputs(NamedTuple):
    """Operands in float64, each number one of its element type.

    Attributes:
        query: ``[B, Hq, Sq, D]``.
        key: ``[B, Hkv, Skv, D]``.
        value: ``[B, Hkv, Skv, Dv]``.
        grad_output: ``[B, Hq, Sq, Dv]``.
        bias: see ``Case.bias``.
        mask: boolean, True is visible; see ``Case.mask``.
        alibi_slopes: ``[Hq]`` or ``[B, Hq]``, float32 numbers; None for the standard ones too.
        sink: ``[Hq]``, float32 numbers.
        auxiliary: what the score_mod reads besides; arrays without axes are scalars that are given
            at launch.
    """

    query: Array
    key: Array
    value: Array
    grad_output: Array
    bias: Array | None = None
    mask: Mask | None = None
    alibi_slopes: Array | None = None
    sink: Array | None = None
    auxiliary: tuple[Array, ...] = ()

    @property
    def operands(self) -> tuple[Array, Array, Array, Array]:
        """Query, key, value, and the output's gradient."""
        return self.query, self.key, self.value, self.grad_output


@dataclass(frozen=True)
class Case:
    """One attention problem. All arrays are padded, ``[B, H, S, D]``, however they lie in memory.

    Attributes:
        name: unique, an identifier.
        batch: sequences, B.
        heads, heads_kv: query heads Hq and key heads Hkv.
        tokens_q, tokens_kv: lengths Sq and Skv, in tokens; of packed or paged sequences, the
            longest that is allowed for.
        head_dim, head_dim_v: lengths D and Dv of a query or key, and of a value.
        dtype: element type of the operands.
        band: which keys a query sees.
        scale: factor of the logits; None: ``1 / sqrt(D)``.
        layout: see ``Layout``.
        logits: see ``Logits``.
        seed: of the data, together with the name.
        bias: axes of a bias; None: no bias.
        bias_dtype: its element type; None: the operands'.
        bias_values: see ``BiasValues``.
        bias_layout: see ``BiasLayout``.
        bias_grad: in training, the bias's gradient is asked for.
        mask: axes of a boolean mask, in which some rows see nothing; None: no mask.
        alibi: ``standard`` slopes, or given ones for each ``head``, or ``batch_head``.
        softmax: what else is in the denominator.
        sink: all sinks' logit; None: normal deviates.
        softcap: bound of the logits.
        score_mod: key of ``SCORE_MODS``.
        dropout_p: probability that an element of ``P`` is dropped.
        lengths_q, lengths_kv: of the sequences, in tokens; None: all are full.
        packed: which sides are packed. These need lengths.
        gaps_q, gaps_kv: unused rows after each packed sequence; None: sequences touch.
        packed_tail: unused rows at the end of each packed tensor.
        page_size: tokens of a page; None: keys are not paged. Pages need ``lengths_kv``.
        own_value_table: the values' pages lie in another order than the keys'.
        reports: bug reports that the case repeats, ``R56``.
    """

    name: str
    batch: int = 2
    heads: int = 2
    heads_kv: int = 2
    tokens_q: int = 48
    tokens_kv: int = 48
    head_dim: int = 64
    head_dim_v: int = 64
    dtype: DType = DType.BFLOAT16
    band: Band = Band()
    scale: float | None = None
    layout: Layout = "bhsd"
    logits: Logits = "normal"
    seed: int = 0
    bias: Axes | None = None
    bias_dtype: DType | None = None
    bias_values: BiasValues = "normal"
    bias_layout: BiasLayout = "dense"
    bias_grad: bool = True
    mask: Axes | None = None
    alibi: Literal["standard", "head", "batch_head"] | None = None
    softmax: Softmax = Softmax.VANILLA
    sink: float | None = None
    softcap: float | None = None
    score_mod: str | None = None
    dropout_p: float = 0.0
    lengths_q: tuple[int, ...] | None = None
    lengths_kv: tuple[int, ...] | None = None
    packed: Literal["both", "q", "kv"] | None = None
    gaps_q: tuple[int, ...] | None = None
    gaps_kv: tuple[int, ...] | None = None
    packed_tail: int = 0
    page_size: int | None = None
    own_value_table: bool = False
    reports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise ValueError(f"{self.name}: {fault}")

    @cached_property
    def tags(self) -> frozenset[str]:
        """What is special about the case, to choose cases by: ``"causal" in case.tags``.

        ``slice``: head dims that GPU backends take, multiples of 8 and at most 256. The others:
        ``alibi``, ``batch_of_one``, ``bias``, ``causal``, ``cross`` (Sq != Skv), ``decode``
        (Sq = 1), ``dropout``, ``empty``, ``empty_sequence`` (a length of 0), ``expanded``
        (stride 0), ``gaps`` (unused rows in packed tensors), ``gqa``, ``large``, ``lengths``,
        ``many_rows`` (1000 of all heads), ``mask``, ``mixed_head_dim`` (D != Dv),
        ``negative_lse`` (below -88.7), ``packed``, ``paged``, ``scale`` (given), ``score_mod``,
        ``sink`` (off-by-one included), ``slack`` (rows of dense operands past a length),
        ``softcap``, ``strided``, ``unaligned``, ``unseen_rows`` (queries that see no key),
        ``window``.
        """
        dims = (self.head_dim, self.head_dim_v)
        lengths = (self.lengths_q or ()) + (self.lengths_kv or ())
        bounds = (self.band.left, self.band.right)
        facts = {
            "slice": all(d % 8 == 0 and d <= 256 for d in dims),
            "alibi": self.alibi is not None,
            "batch_of_one": self.batch == 1,
            "bias": self.bias is not None,
            "causal": self.band.left is None and self.band.right == 0,
            "cross": self.tokens_q != self.tokens_kv,
            "decode": self.tokens_q == 1,
            "dropout": self.dropout_p > 0,
            "empty": 0 in (self.batch, self.tokens_q, self.tokens_kv),
            "empty_sequence": 0 in lengths,
            "expanded": self.layout == "expanded_kv",
            "gaps": any(p is not None and p.tokens > sum(p.lengths) for p in self.packings),
            "gqa": self.heads != self.heads_kv,
            "large": max(self.tokens_q, self.tokens_kv) >= _LARGE,
            "lengths": self.lengths_q is not None or self.lengths_kv is not None,
            "many_rows": self.batch * self.heads * self.tokens_q >= _MANY,
            "mask": self.mask is not None,
            "mixed_head_dim": self.head_dim != self.head_dim_v,
            "negative_lse": "very_negative" in (self.logits, self.bias_values),
            "packed": self.packed is not None,
            "paged": self.page_size is not None,
            "scale": self.scale is not None,
            "score_mod": self.score_mod is not None,
            "sink": self.softmax is not Softmax.VANILLA,
            "slack": self._has_slack(),
            "softcap": self.softcap is not None,
            "strided": self.layout not in {"bhsd", "unaligned"},
            "unaligned": self.layout == "unaligned",
            "unseen_rows": self._has_unseen_rows(),
            "window": self.band.left is not None or bounds[1] not in (None, 0),
        }
        return frozenset(name for name, holds in facts.items() if holds)

    @property
    def effective_scale(self) -> float:
        return default_scale(self.head_dim) if self.scale is None else self.scale

    @property
    def query_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.tokens_q, self.head_dim

    @property
    def key_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads_kv, self.tokens_kv, self.head_dim

    @property
    def value_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads_kv, self.tokens_kv, self.head_dim_v

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.tokens_q, self.head_dim_v

    def shape_of(self, axes: Axes) -> tuple[int, int, int, int]:
        """Of a bias or mask with these axes."""
        full = (self.batch, self.heads, self.tokens_q, self.tokens_kv)
        b, h, i, j = (1 if axis == "1" else n for axis, n in zip(axes, full, strict=True))
        return b, h, i, j

    @property
    def score_mod_case(self) -> ScoreModCase | None:
        return None if self.score_mod is None else SCORE_MODS[self.score_mod]

    @property
    def auxiliary_shapes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Of what the score_mod reads; None for a scalar."""
        full = (self.batch, self.heads, self.tokens_q, self.tokens_kv)
        function = self.score_mod_case
        return tuple(operand.shape(full) for operand in (function.auxiliary if function else ()))

    @property
    def effective_bias_dtype(self) -> DType:
        return self.bias_dtype or self.dtype

    @property
    def packs_q(self) -> bool:
        return self.packed in {"both", "q"}

    @property
    def packs_kv(self) -> bool:
        return self.packed in {"both", "kv"}

    @property
    def packing_q(self) -> Packing | None:
        """Where packed queries, and everything that has their tokens, lie."""
        if not self.packs_q:
            return None
        return Packing(self.lengths_q or (), self.tokens_q, self.gaps_q, self.packed_tail)

    @property
    def packing_kv(self) -> Packing | None:
        """Where packed keys and values lie."""
        if not self.packs_kv:
            return None
        return Packing(self.lengths_kv or (), self.tokens_kv, self.gaps_kv, self.packed_tail)

    @property
    def packings(self) -> tuple[Packing | None, Packing | None]:
        return self.packing_q, self.packing_kv

    @property
    def seq_lens_q(self) -> tuple[int, ...] | None:
        """Lengths that the caller gives for dense queries: beside packed keys always some."""
        if self.packs_q:
            return None
        return _given(self.lengths_q, self.batch, self.tokens_q, self.packed is not None)

    @property
    def seq_lens_kv(self) -> tuple[int, ...] | None:
        """Lengths that the caller gives for dense or paged keys."""
        if self.packs_kv:
            return None
        return _given(self.lengths_kv, self.batch, self.tokens_kv, self.packed is not None)

    def pages(self, inputs: Inputs) -> Pages:
        """Key and value in pages."""
        if self.page_size is None or self.lengths_kv is None:
            raise ValueError(f"{self.name} is not paged")
        return paged(
            inputs.key,
            inputs.value,
            self.lengths_kv,
            self.page_size,
            own_value_table=self.own_value_table,
        )

    def arrays(self) -> Inputs:
        """The operands: the same at every call; sequences and heads differ from each other."""
        from .case_data import arrays_of  # (it takes a Case)

        return arrays_of(self)

    def visible(self) -> Mask:
        """Boolean ``[B, 1 or Hq, Sq, Skv]``: what band, lengths and mask leave visible.

        A bias or score_mod that hides is not looked at.
        """
        visible = np.zeros((self.batch, 1, self.tokens_q, self.tokens_kv), dtype=np.bool_)
        for b in range(self.batch):
            sq = self.tokens_q if self.lengths_q is None else self.lengths_q[b]
            skv = self.tokens_kv if self.lengths_kv is None else self.lengths_kv[b]
            visible[b, 0, :sq, :skv] = visible_pairs(self.band, sq, skv)
        mask = None if self.mask is None else self.arrays().mask
        return visible if mask is None else visible & mask

    def exists_q(self) -> Mask:
        """Boolean ``[B, Sq]``: which queries there are."""
        return _within(self.lengths_q, self.batch, self.tokens_q)

    def exists_kv(self) -> Mask:
        """Boolean ``[B, Skv]``: which keys there are."""
        return _within(self.lengths_kv, self.batch, self.tokens_kv)

    def _has_unseen_rows(self) -> bool:
        if self.band.is_full and not self.lengths_q and not self.lengths_kv and not self.mask:
            return self.tokens_kv == 0 and self.tokens_q > 0
        if not self.lengths_q and not self.lengths_kv and not self.mask:
            visible = visible_pairs(self.band, self.tokens_q, self.tokens_kv)
            return not visible.any(axis=1).all()
        return bool((self.exists_q()[:, None] & ~self.visible().any(axis=-1)).any())

    def _has_slack(self) -> bool:
        sides = (
            (self.lengths_q, self.tokens_q, self.packs_q),
            (self.lengths_kv, self.tokens_kv, self.packs_kv or self.page_size is not None),
        )
        return any(
            lengths is not None and not elsewhere and min(lengths, default=tokens) < tokens
            for lengths, tokens, elsewhere in sides
        )


def _given(
    lengths: tuple[int, ...] | None, batch: int, tokens: int, needed: bool
) -> tuple[int, ...] | None:
    """The lengths, or if they are needed but not given, full ones. No sequences have none."""
    if lengths is not None or not needed:
        return lengths
    return (tokens,) * batch


def _within(lengths: tuple[int, ...] | None, batch: int, tokens: int) -> Mask:
    ends = np.array(lengths or (tokens,) * batch, dtype=np.int64)
    within: Mask = np.arange(tokens) < ends[:, None]
    return within


def _faults(case: Case) -> list[str]:
    """What does not go together."""
    alike = (
        (case.heads, case.tokens_q, case.head_dim, case.lengths_q, case.gaps_q),
        (case.heads_kv, case.tokens_kv, case.head_dim_v, case.lengths_kv, case.gaps_kv),
    )
    one_buffer = case.layout in {"packed_qkv", "qkv_h3d"}
    two_views = case.layout in {"kv_packed", "kv_h2d"}
    lengths = {
        "lengths_q": (case.lengths_q, case.tokens_q),
        "lengths_kv": (case.lengths_kv, case.tokens_kv),
    }
    found = {
        f"{case.layout} needs equal heads, tokens and head_dim": one_buffer
        and alike[0] != alike[1],
        f"{case.layout} needs both sides packed, or none": one_buffer
        and case.packed not in {None, "both"},
        f"{case.layout} needs equal head_dims": two_views and case.head_dim != case.head_dim_v,
        f"logits {case.logits} need a scale other than 0": case.scale == 0
        and case.logits in {"very_negative", "large_positive"},
        f"no layout {case.layout}": case.layout not in get_args(Layout),
        "packed queries need lengths": case.packs_q and case.lengths_q is None,
        "packed keys need lengths": case.packs_kv and case.lengths_kv is None,
        "gaps_q need packed queries": case.gaps_q is not None and not case.packs_q,
        "gaps_kv need packed keys": case.gaps_kv is not None and not case.packs_kv,
        "pages need lengths_kv": case.page_size is not None and case.lengths_kv is None,
        "pages are not packed": case.page_size is not None and case.packs_kv,
        "a sink needs softmax learnable": case.sink is not None
        and case.softmax is not Softmax.LEARNABLE,
        f"no score_mod {case.score_mod}": case.score_mod is not None
        and case.score_mod not in SCORE_MODS,
    }
    for name, (given, tokens) in lengths.items():
        fits = given is None or (len(given) == case.batch and all(0 <= n <= tokens for n in given))
        found[f"{name} are {given}; expected {case.batch} from 0 to {tokens}"] = not fits
    return [fault for fault, holds in found.items() if holds]
