"""What a described graph computes, by the oracle; with the faults of the cuDNN that plays along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import score_mod
from ..alibi import alibi_slopes
from ..cudnn.graph import GraphSpec
from ..cudnn.memory import on_query_side
from ..mask import Alignment, Band
from ..problem import Softmax
from .fake_sequences import Side, Values
from .logits import Array, At, Dropout, Features, Logits
from .philox_bits import keep_mask
from .reference import attended, attention, attention_backward
from .score_mods import part
from .tolerances import assert_close, error_scales

#: The first cuDNN that handles sequences without keys (cudnn-frontend issue 943).
_EMPTY_SINCE = 92500

#: More of a difference between log-sum-exps than float32 makes, relative to ``1 + |LSE| / 64``.
_RESOLVED = 1e-4

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
class Execution:
    """One launch.

    Attributes:
        graph: what is executed.
        values: the inputs by role, as they lie in memory.
        scalars: numbers read from the host, by role.
        rows: of the memory of packed results, by role.
        version: of cuDNN, as ``cudnnGetVersion()``.
    """

    graph: GraphSpec
    values: Values
    scalars: Mapping[str, float]
    rows: Mapping[str, int]
    version: int

    def results(self) -> dict[str, Array]:
        """By role, in their memory."""
        forward = self.graph.operation == "sdpa"
        with np.errstate(all="ignore"):
            padded = self._forward() if forward else self._backward()
            self._spoil(padded)
        return {
            role: self._stored(role, array)
            for role, array in padded.items()
            if self.graph.has(role)
        }

    # ------------------------------------------------------------------------------- reading

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

    # ----------------------------------------------------------------------------- computing

    def _forward(self) -> dict[str, Array]:
        output, lse, _ = attention(*self.operands, **self.features)
        results = {"output": output, "stats": lse[..., None]}
        if self.graph.has("max_logit"):
            results["max_logit"] = self._row_maxima()[..., None]
        return results

    def _row_maxima(self) -> Array:
        """``[B, Hq, Sq]``; NaN in rows of no sequence."""
        call = attended(*self.operands, self.features)
        maxima = np.full(call.q.shape[:3], np.nan)
        for head in call.heads():
            maxima[head.query_at] = Logits.of(head, call).final.max(axis=1, initial=-np.inf)
        return maxima

    def _backward(self) -> dict[str, Array]:
        given = {role: self.queries.padded(self.values[role]) for role in ("output", "grad_output")}
        features = self._check_forwarded(given["output"], given["grad_output"])
        if self.graph.has("grad_bias") and features["bias"] is None:
            # The bias is part of the function, and the last that it adds: one of 0 behind it has
            # the same gradient.
            features = Features(**{**features, "bias": self._no_bias()})
        gradients = attention_backward(*self.operands, given["grad_output"], **features)
        results = gradients._asdict()
        if self.graph.has("grad_bias"):
            results["grad_bias"] = self._whole_bias(results["grad_bias"])
        if self.graph.has("grad_sink"):
            results["grad_sink"] = results["grad_sink"].reshape(1, -1, 1, 1)
        return {role: array for role, array in results.items() if array is not None}

    def _no_bias(self) -> Array:
        """Zeros, broadcast along the axes along which the gradient of the bias is summed."""
        query, key, _ = self.operands
        computed = (*query.shape[:3], key.shape[2])
        declared = self.graph.operand("grad_bias").shape
        return np.zeros([1 if n == 1 else m for n, m in zip(declared, computed, strict=True)])

    def _whole_bias(self, gradient: Array) -> Array:
        whole = np.zeros(self.graph.operand("grad_bias").shape)
        _, _, rows, columns = gradient.shape
        whole[:, :, :rows, :columns] = gradient[: len(whole)]
        return whole

    def _check_forwarded(self, output: Array, grad_output: Array) -> Features:
        """Raise unless the backward graph is given what its forward computed, NaN for NaN.

        Rows past a length do not matter, nor do those without a gradient. Returns the features,
        with the sink, if the statistics hold one that the graph does not know.
        """
        stats = self.values["stats"]
        packed = self.graph.operand("stats").ragged is not None
        lse = (self.queries.padded(stats) if packed else stats)[..., : output.shape[2], 0]
        matters = (np.nan_to_num(grad_output, nan=1.0) != 0).any(axis=-1)
        if self.queries.lengths is not None:
            matters &= (np.arange(output.shape[2]) < self.queries.lengths[:, None])[:, None]
        features = self._with_sink_of(np.where(matters, lse, np.nan))
        exact = attention(*self.operands, **features)
        scales = error_scales(*self.operands, dtype=self.graph.io_dtype, **features)
        _compare("output", output, exact.output, scales.output, matters)
        _compare("stats", lse, exact.lse, scales.lse, matters)
        return features

    def _with_sink_of(self, lse: Array) -> Features:
        """The features with the sink of each head that explains the statistics.

        The log-sum-exp is all that the backward pass must know of a sink: graphs without its
        gradient leave it out.

        Args:
            lse: given ``[B, Hq, Sq]``; NaN in rows that do not matter.
        """
        features = self.features
        if features["sink"] is not None:
            return features
        keys = attention(*self.operands, **features).lse
        resolved = lse - keys > _RESOLVED * (1 + np.abs(lse) / 64)
        more = np.where(resolved, lse + np.log(-np.expm1(keys - lse)), np.nan)
        # The smallest difference that float32 statistics resolve is the least exact sink.
        gain = np.where(np.isnan(more), -np.inf, lse - keys)
        if not (gain > -np.inf).any():
            return features
        sink = np.full(lse.shape[1], -np.inf)
        for h in range(lse.shape[1]):
            best = np.unravel_index(np.argmax(gain[:, h]), gain[:, h].shape)
            sink[h] = -np.inf if np.isnan(more[:, h][best]) else more[:, h][best]
        return Features(**{**features, "softmax": Softmax.LEARNABLE, "sink": sink})

    def _stored(self, role: str, array: Array) -> Array:
        operand = self.graph.operand(role)
        if role in {"grad_bias", "grad_sink"}:
            return array
        side = self.queries if on_query_side(role) else self.keys
        return side.stored(array, operand, self.rows.get(role, 0))

    # -------------------------------------------------------------------------------- faults

    def _spoil(self, results: dict[str, Array]) -> None:
        """Do as cuDNN does: see h200 measurements named in ``cudnn.known_bad``.

        NaN in the rest of a sequence's last key tile reaches all results of the sequence, because
        weights of 0 are multiplied with it. A sequence without keys gives NaN before 9.25.
        """
        lengths = self.keys.lengths
        if lengths is None:
            return
        for b in range(len(lengths)):
            queries = self.queries.lengths
            if queries is not None and queries[b] == 0 and self.keys.starts is not None:
                continue  # nothing is launched for a sequence that only fills up the batch
            empty = lengths[b] == 0 and self.version < _EMPTY_SINCE
            if empty or self._has_bad_slack(b):
                self._spoil_sequence(results, b)

    def _spoil_sequence(self, results: dict[str, Array], b: int) -> None:
        rows = slice(None) if self.queries.lengths is None else slice(int(self.queries.lengths[b]))
        for role in ("output", "stats", "max_logit", "grad_query"):
            if role in results:
                results[role][b, :, rows] = np.nan
        for role in ("grad_key", "grad_value"):
            if role in results:
                results[role][b] = np.nan

    def _has_bad_slack(self, b: int) -> bool:
        if self.graph.has("page_table_k"):
            return any(self.keys.has_bad_slack(array, b) for array in self.operands[1:])
        return any(self.keys.has_bad_slack(self.values[role], b) for role in ("key", "value"))


@dataclass(frozen=True)
class ExpressionFunction:
    """``logits.Function`` of a graph that holds its function of the logits, masks included."""

    graph: GraphSpec
    values: Values
    scalars: Mapping[str, float]

    def value(self, score: Array, at: At) -> Array:
        return self._evaluated(self.graph.score_mod, score, at, None)

    def pull_back(self, gradient: Array, score: Array, at: At) -> Array:
        return self._evaluated(
            self.graph.score_mod_gradient or self._derived(), score, at, gradient
        )

    def _derived(self) -> score_mod.Expression:
        """Of a forward graph, which holds no gradient: only error scales ask for it."""
        assert self.graph.score_mod is not None
        return score_mod.gradient(self.graph.score_mod)

    def _evaluated(
        self, expression: score_mod.Expression | None, score: Array, at: At, grad: Array | None
    ) -> Array:
        assert expression is not None

        def leaf(node: score_mod.Node) -> NDArray[Any]:
            match node:
                case score_mod.Score():
                    return score
                case score_mod.Grad() if grad is not None:
                    return grad
                case score_mod.Index(axis):
                    return np.asarray(_index(at, axis))
                case score_mod.Tensor(position, _):
                    whole = self.values[self.graph.score_mod_tensors[position]]
                    return _typed(part(whole, at), node.type)
                case score_mod.Scalar(position):
                    return np.asarray(self.scalars[f"score_mod_scalar_{position}"])
                case score_mod.Constant(value):
                    return _typed(np.asarray(value), node.type)
            raise AssertionError(f"{node} is no leaf of this expression")

        ops = score_mod.array_ops(
            np, lambda x: np.asarray(x, np.float64), lambda x: np.asarray(x, np.int64)
        )
        return np.broadcast_to(score_mod.evaluate(expression, ops, leaf), score.shape)


def _index(at: At, axis: score_mod.Axis) -> Any:
    return {
        score_mod.Axis.BATCH: at.batch,
        score_mod.Axis.HEAD: at.head,
        score_mod.Axis.QUERY: at.i,
        score_mod.Axis.KEY: at.j,
    }[axis]


def _typed(array: NDArray[Any], kind: score_mod.Type) -> NDArray[Any]:
    types = {
        score_mod.Type.FLOAT: np.float64,
        score_mod.Type.INT: np.int64,
        score_mod.Type.BOOL: np.bool_,
    }
    return array.astype(types[kind])


def _compare(name: str, given: Array, exact: Array, scale: Array, matters: NDArray[Any]) -> None:
    matters = np.broadcast_to(matters[..., None] if exact.ndim == 4 else matters, exact.shape)
    scale = np.broadcast_to(scale, exact.shape)
    if np.isfinite(given[matters & np.isnan(exact)]).any():
        raise AssertionError(f"{name} is finite where its forward gives NaN")
    # A row without visible keys is known, but NaN in its operands leaves its error scale unknown.
    known = matters & ~(np.isnan(exact) | np.isnan(scale))
    assert_close(name, given[known], exact[known], scale[known])


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
