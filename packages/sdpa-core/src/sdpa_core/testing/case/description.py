"""What describes a case, and the shapes that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...dtypes import DType
from ...mask import Band
from ...problem import Softmax
from ...validate import default_scale
from ..packing import Packing
from ..score_mods import SCORE_MODS, ScoreModCase
from .kinds import Axes, BiasLayout, BiasValues, Layout, Logits


@dataclass(frozen=True)
class Description:
    """What a case is made of. All arrays are padded, ``[B, H, S, D]``, however they lie in memory.

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


def _given(
    lengths: tuple[int, ...] | None, batch: int, tokens: int, needed: bool
) -> tuple[int, ...] | None:
    """The lengths, or if they are needed but not given, full ones. No sequences have none."""
    if lengths is not None or not needed:
        return lengths
    return (tokens,) * batch
