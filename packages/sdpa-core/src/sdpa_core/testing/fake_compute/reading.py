"""The call that a graph and its operands describe, as cuDNN would read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...alibi import alibi_slopes
from ...cudnn.graph import GraphSpec
from ...mask import Alignment, Band
from ...problem import Softmax
from ..fake_sequences import Side, Values
from ..logits import Array, Dropout, Features
from ..philox_bits import keep_mask
from .function import ExpressionFunction

#: Options that change no number.
_NEUTRAL = frozenset(
    {
        "generate_stats",
        "implementation",
        "max_total_seq_len_kv",
        "max_total_seq_len_q",
        "use_deterministic_algorithm",
    }
)


@dataclass(frozen=True)
class Reading:
    """What is computed with.

    Attributes:
        graph: what is executed.
        values: the inputs by role, as they lie in memory.
        scalars: numbers read from the host, by role.
    """

    graph: GraphSpec
    values: Values
    scalars: Mapping[str, float]

    @cached_property
    def queries(self) -> Side:
        return Side.of(self.graph, self.values, "q")

    @cached_property
    def keys(self) -> Side:
        return Side.of(self.graph, self.values, "kv")

    @cached_property
    def options(self) -> dict[str, object]:
        return dict(self.graph.options)

    @cached_property
    def operands(self) -> tuple[Array, Array, Array]:
        """Query, key and value, padded."""
        query = self.queries.padded(self.values["query"])
        if self.graph.has("page_table_k"):
            key = self._gathered("key", "page_table_k")
            return query, key, self._gathered("value", "page_table_v")
        return query, self.keys.padded(self.values["key"]), self.keys.padded(self.values["value"])

    def _gathered(self, role: str, table: str) -> Array:
        pages = self.values[role][self.values[table][:, 0, :, 0].astype(np.int64)]
        batch, count, heads, size, head_dim = pages.shape
        by_head = np.moveaxis(pages, 2, 1)
        return by_head.reshape(batch, heads, count * size, head_dim)

    @cached_property
    def features(self) -> Features:
        options, graph, values = dict(self.options), self.graph, self.values
        heads = self.operands[0].shape[1]
        sink = values["sink"].reshape(-1) if graph.has("sink") else None
        features = Features(
            band=_band(options),
            scale=self.scalars["scale"],
            bias=self._bias(),
            softmax=Softmax.VANILLA if sink is None else Softmax.LEARNABLE,
            sink=sink,
            score_mod=self._function(),
            dropout=self._dropout(options, heads),
            lengths_q=self.queries.lengths,
            lengths_kv=self.keys.lengths,
        )
        if options.pop("use_alibi_mask", False):
            band = features["band"] or Band()
            if band.right != 0 or band.alignment is not Alignment.TOP_LEFT:
                raise AssertionError(f"cuDNN takes ALiBi up to a top-left diagonal, not {band}")
            features["alibi_slopes"] = alibi_slopes(heads)
        padding = options.pop("use_padding_mask", False)
        given = graph.score_mod is None and self.queries.lengths is not None
        if padding != given:
            raise AssertionError("lengths go with use_padding_mask, and it with lengths")
        tokens = options.pop("paged_attention_max_seq_len_kv", None)
        if (tokens is not None) != graph.has("page_table_k"):
            raise AssertionError("page tables go with paged_attention_max_seq_len_kv")
        if options.keys() - _NEUTRAL:
            unknown = sorted(options.keys() - _NEUTRAL)
            raise AssertionError(f"the fake does not know the options {unknown}")
        return features

    def _bias(self) -> Array | None:
        """For the sequences and tokens that are computed: declared may be more."""
        if not self.graph.has("bias") or self.graph.score_mod is not None:
            return None
        query, key, _ = self.operands
        bias = np.asarray(self.values["bias"], dtype=np.float64)
        batch, _, rows, columns = bias.shape
        if batch not in {1, len(query)}:
            more = np.zeros((len(query) - batch, *bias.shape[1:]))
            bias = np.concatenate([bias, more])
        rows = slice(query.shape[2] if rows > 1 else 1)
        columns = slice(key.shape[2] if columns > 1 else 1)
        return bias[:, :, rows, columns]

    def _function(self) -> ExpressionFunction | None:
        if self.graph.score_mod is None:
            return None
        return ExpressionFunction(self.graph, self.values, self.scalars)

    def _dropout(self, options: dict[str, object], heads: int) -> Dropout | None:
        p = options.pop("dropout_p", None)
        if p is None:
            return None
        if not isinstance(p, float):
            raise AssertionError(f"dropout_p is a float, not {p!r}")  # noqa: TRY004 - a wrong graph
        query, key, _ = self.operands
        declared = self.graph.operand("query").shape[2]
        seed, offset = (int(self.values[f"dropout_{x}"].reshape(-1)[0]) for x in ("seed", "offset"))
        keep = keep_mask(seed, offset, p, len(query), heads, declared, key.shape[2])
        return Dropout(keep[:, :, : query.shape[2]], p)


def _band(options: dict[str, object]) -> Band:
    """The band that cuDNN would apply: its left bound counts the diagonal, ours does not."""
    alignment = Alignment(str(options.pop("diagonal_alignment", Alignment.TOP_LEFT)))
    right = _bound(options.pop("diagonal_band_right_bound", None))
    left = _bound(options.pop("diagonal_band_left_bound", None))
    return Band(None if left is None else left - 1, right, alignment)


def _bound(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    raise AssertionError(f"a bound is an int or None, not {value!r}")
