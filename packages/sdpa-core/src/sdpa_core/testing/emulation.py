"""A faultless kernel, emulated: what the suite must let pass.

Attention in float32, all heads at once, rounded where kernels with 16-bit matrix products round.
It reads operands from memory as they are placed, and hands results back as packed tensors would
lie. Subclasses plant faults at its methods, which is how the suite itself is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import score_mod
from ..alibi import alibi_slopes
from ..errors import NoBackendError
from ..mask import Alignment, Band
from ..paged import INFERENCE_ONLY
from ..problem import Softmax
from ..reasons import Unsupported
from .case import Case, Inputs
from .logits import Mask, visible_pairs
from .packing import Packing
from .philox_bits import keep_mask
from .placement import Placed, place_all, problem_of
from .rounding import round_to
from .subject import DropoutState, Result

#: Of float32.
Floats = NDArray[Any]


class EmulatedKernel:
    """A subject of the conformance suite."""

    name = "emulated kernel"
    #: Of every call with dropout; above 2**31, where 32 bits would cut it.
    seed = 2**40 + 7

    def refusal(self, case: Case, *, training: bool, **options: bool) -> tuple[Unsupported, ...]:
        return (INFERENCE_ONLY,) if training and case.page_size is not None else ()

    def run(
        self,
        case: Case,
        inputs: Inputs,
        *,
        training: bool,
        return_lse: bool,
        return_max_logit: bool = False,
        deterministic: bool = False,
    ) -> Result:
        if training and case.page_size is not None:
            raise NoBackendError(f"paged attention is for inference: {INFERENCE_ONLY}")
        with np.errstate(all="ignore"):
            call = _Call(self, case, self.read(case, inputs))
            arrays: dict[str, NDArray[Any]] = {"output": call.output}
            if return_lse:
                arrays["lse"] = self.lse(call.lse[..., 0])
            if return_max_logit:
                arrays["max_logit"] = self.max_logit(call)
            if training:
                arrays |= call.gradients(inputs)
            return self.result(arrays, case)

    # ------------------------------------------------------------------------- seams for faults

    def read(self, case: Case, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """All operands from memory; query, key and value padded, with 0 past the lengths."""
        placed = place_all(case, inputs)
        found: dict[str, NDArray[Any]] = {name: x.read() for name, x in placed.items()}
        packings = {"query": case.packing_q, "key": case.packing_kv, "value": case.packing_kv}
        packings["grad_output"] = case.packing_q
        for name, packing in packings.items():
            found[name] = self.unpacked(placed[name], packing)
        if case.page_size is not None:
            for name, table in (("key", "page_table_k"), ("value", "page_table_v")):
                found[name] = self.gathered(found[name], found[table], case)
        for name in ("query", "grad_output"):
            found[name] = np.where(self.exists_q(case)[:, None, :, None], found[name], 0)
        for name in ("key", "value"):
            found[name] = np.where(self.exists_kv(case)[:, None, :, None], found[name], 0)
        return found

    def unpacked(self, placed: Placed, packing: Packing | None) -> NDArray[Any]:
        return placed.read() if packing is None else packing.unpack(placed.read())

    def gathered(self, pool: NDArray[Any], table: NDArray[Any], case: Case) -> NDArray[Any]:
        pages = pool[table.astype(np.int64)]
        batch, count, size, heads, head_dim = pages.shape
        rows = pages.reshape(batch, count * size, heads, head_dim)[:, : case.tokens_kv]
        return np.swapaxes(rows, 1, 2)

    def exists_q(self, case: Case) -> Mask:
        return case.exists_q()

    def exists_kv(self, case: Case) -> Mask:
        return case.exists_kv()

    def scale(self, case: Case) -> float:
        return case.effective_scale

    def band(self, case: Case) -> Band:
        return case.band

    def lengths(self, case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """By which bottom-right bands and ALiBi are aligned, and keys hidden."""
        full_q, full_kv = (case.tokens_q,) * case.batch, (case.tokens_kv,) * case.batch
        return case.lengths_q or full_q, case.lengths_kv or full_kv

    def visible(self, case: Case, mask: NDArray[Any] | None) -> Mask:
        shape = (case.batch, case.heads, case.tokens_q, case.tokens_kv)
        visible = np.zeros(shape, dtype=np.bool_)
        for b, (sq, skv) in enumerate(zip(*self.lengths(case), strict=True)):
            visible[b, :, :sq, :skv] = visible_pairs(self.band(case), sq, skv)
        return visible if mask is None else visible & (mask != 0)

    def softcapped(self, logits: Floats, cap: float) -> Floats:
        return np.float32(cap) * np.tanh(logits / np.float32(cap))

    def distances(self, case: Case) -> Floats:
        """``[B, 1, Sq, Skv]``: of ALiBi."""
        lengths_q, lengths_kv = (np.array(n) for n in self.lengths(case))
        shift = np.zeros(case.batch)
        if case.band.alignment is Alignment.BOTTOM_RIGHT:
            shift = lengths_kv - lengths_q
        i, j = np.arange(case.tokens_q)[:, None], np.arange(case.tokens_kv)
        return np.abs(i + shift[:, None, None, None] - j).astype(np.float32)

    def slopes(self, case: Case, given: NDArray[Any] | None) -> Floats:
        slopes = np.array(alibi_slopes(case.heads)) if given is None else given
        return slopes.reshape(-1, case.heads, 1, 1).astype(np.float32)

    def added(self, logits: Floats, bias: Floats) -> Floats:
        return logits + bias

    def sink(self, case: Case, given: NDArray[Any] | None) -> Floats | None:
        """``[1, Hq, 1, 1]``."""
        if case.softmax is Softmax.VANILLA:
            return None
        sink = np.zeros(case.heads) if given is None else given
        return sink.reshape(1, -1, 1, 1).astype(np.float32)

    def maximum(self, logits: Floats, sink: Floats | None) -> Floats:
        """Of each row, what is subtracted before the exponential."""
        largest = logits.max(axis=-1, keepdims=True, initial=-np.inf)
        if sink is not None:
            largest = np.maximum(largest, sink)
        return np.where(np.isneginf(largest), np.float32(0), largest)

    def keep(self, case: Case) -> Floats | None:
        """``[B, Hq, Sq, Skv]``: dropout's factors."""
        if case.dropout_p == 0:
            return None
        shape = (case.batch, case.heads, case.tokens_q, case.tokens_kv)
        keep = keep_mask(self.seed, 0, case.dropout_p, *shape)
        return keep / np.float32(1 - case.dropout_p)

    def divide(self, weights: Floats, total: Floats) -> Floats:
        return weights / np.where(total == 0, np.float32(1), total)

    def lse(self, lse: Floats) -> Floats:
        return lse

    def max_logit(self, call: _Call) -> Floats:
        largest: Floats = call.logits.max(axis=(0, 2, 3), initial=-np.inf)
        return largest

    def sum_group(self, gradient: Floats, case: Case) -> Floats:
        """Sum over the query heads that share a key head."""
        _, _, tokens, head_dim = gradient.shape
        group = case.heads // case.heads_kv
        shape = (case.batch, case.heads_kv, group, tokens, head_dim)
        total: Floats = gradient.reshape(shape).sum(2)
        return total

    def sum_bias(self, gradient: Floats, shape: tuple[int, ...]) -> Floats:
        """Sum over the axes along which the bias is repeated."""
        axes = tuple(axis for axis, n in enumerate(shape) if n == 1 and gradient.shape[axis] != 1)
        total: Floats = gradient.sum(axis=axes, keepdims=True)
        return total

    def softcap_slope(self, call: _Call) -> Floats:
        cap = np.float32(call.case.softcap or 1)
        return 1 - np.tanh(call.scaled / cap) ** 2

    def scale_of_grad_key(self, case: Case) -> float:
        return self.scale(case)

    def state(self, case: Case) -> DropoutState | None:
        return DropoutState(self.seed) if case.dropout_p else None

    def packed(self, name: str, array: NDArray[Any], case: Case) -> NDArray[Any] | None:
        """A result as it lies packed, gaps included; None if it is not packed."""
        packing = case.packing_kv if name in {"grad_key", "grad_value"} else case.packing_q
        if packing is None or name in {"max_logit", "grad_bias", "grad_sink"}:
            return None
        return packing.pack(array, fill=-np.inf if name == "lse" else 0.0)

    def result(self, arrays: dict[str, NDArray[Any]], case: Case) -> Result:
        types = dict.fromkeys(arrays, case.dtype)
        types["grad_bias"] = case.effective_bias_dtype
        rounded, dtypes, gaps = {}, {}, {}
        for name, array in arrays.items():
            single = name in {"lse", "max_logit", "grad_sink"}
            dtypes[name] = "float32" if single else str(types[name])
            exact = array.astype(np.float64)
            rounded[name] = exact if single else round_to(exact, types[name])
            lying = self.packed(name, rounded[name], case)
            packing = case.packing_kv if name in {"grad_key", "grad_value"} else case.packing_q
            if lying is not None and packing is not None:
                gaps[name] = packing.gap_rows(lying)
        return Result(**rounded, dtypes=dtypes, gaps=gaps, dropout=self.state(case))


@dataclass(frozen=True, eq=False)
class _Call:
    """The arrays of one run, ``[B, Hq, Sq, Skv]`` and ``[B, Hq, S, D]`` in float32."""

    kernel: EmulatedKernel
    case: Case
    operands: dict[str, NDArray[Any]]

    def single(self, name: str) -> Floats:
        return self.operands[name].astype(np.float32)

    def repeated(self, name: str) -> Floats:
        return self.single(name).repeat(self.case.heads // self.case.heads_kv, axis=1)

    def io(self, array: NDArray[Any]) -> Floats:
        return round_to(array, self.case.dtype).astype(np.float32)

    @cached_property
    def scaled(self) -> Floats:
        scale = np.float32(self.kernel.scale(self.case))
        scaled: Floats = scale * (self.single("query") @ _transposed(self.repeated("key")))
        return scaled

    @cached_property
    def capped(self) -> Floats:
        cap = self.case.softcap
        return self.scaled if cap is None else self.kernel.softcapped(self.scaled, cap)

    @cached_property
    def visible(self) -> Mask:
        return self.kernel.visible(self.case, self.operands.get("mask"))

    @cached_property
    def logits(self) -> Floats:
        case, logits = self.case, self.capped
        if case.score_mod is not None:
            logits = self.modified(backward=False)
        if "bias" in self.operands:
            logits = self.kernel.added(logits, self.single("bias"))
        if case.alibi is not None:
            slopes = self.kernel.slopes(case, self.operands.get("alibi_slopes"))
            logits = logits - slopes * self.kernel.distances(case)
        return np.where(self.visible, logits, np.float32(-np.inf))

    def modified(self, *, backward: bool, grad: Floats | None = None) -> Floats:
        """The score_mod, or its gradient, by the library's own evaluation."""
        given = problem_of(self.case).score_mod
        assert given is not None
        expression = given.expression
        if backward:
            expression = given.gradient or score_mod.gradient(expression)
        leaves = [x for name, x in self.operands.items() if name.startswith("score_mod_")]
        tensors = [x for x in leaves if x.ndim]
        scalars = [x for x in leaves if not x.ndim]
        shape = self.capped.shape

        def leaf(node: score_mod.Node) -> NDArray[Any]:
            match node:
                case score_mod.Score():
                    return self.capped
                case score_mod.Grad() if grad is not None:
                    return grad
                case score_mod.Index(axis):
                    return np.indices(shape, np.int32, sparse=True)[
                        tuple(score_mod.Axis).index(axis)
                    ]
                case score_mod.Tensor(position, _):
                    integers = node.type is score_mod.Type.INT
                    return tensors[position].astype(np.int32 if integers else np.float32)
                case score_mod.Scalar(position):
                    return scalars[position].astype(np.float32)
                case score_mod.Constant(value):
                    return np.asarray(value, _NUMPY[node.type])
            raise AssertionError(node)

        ops = score_mod.array_ops(
            np, lambda x: np.asarray(x, np.float32), lambda x: np.asarray(x, np.int32)
        )
        return np.broadcast_to(score_mod.evaluate(expression, ops, leaf), shape)

    @cached_property
    def largest(self) -> Floats:
        return self.kernel.maximum(self.logits, self.sink)

    @cached_property
    def sink(self) -> Floats | None:
        return self.kernel.sink(self.case, self.operands.get("sink"))

    @cached_property
    def weights(self) -> Floats:
        weights: Floats = np.exp(self.logits - self.largest)
        return weights

    @cached_property
    def total(self) -> Floats:
        total: Floats = self.weights.sum(axis=-1, keepdims=True)
        return total if self.sink is None else total + np.exp(self.sink - self.largest)

    @cached_property
    def lse(self) -> Floats:
        lse = np.where(self.total > 0, np.log(self.total) + self.largest, -np.inf)
        return np.where(self.kernel.exists_q(self.case)[:, None, :, None], lse, -np.inf)

    @cached_property
    def keep(self) -> Floats | float:
        keep = self.kernel.keep(self.case)
        return 1.0 if keep is None else keep

    @cached_property
    def output(self) -> Floats:
        return self.kernel.divide(
            self.io(self.weights * self.keep) @ self.repeated("value"), self.total
        )

    def gradients(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        case, kernel = self.case, self.kernel
        scale, grad = np.float32(kernel.scale(case)), self.single("grad_output")
        p = np.where(np.isneginf(self.logits), np.float32(0), np.exp(self.logits - self.lse))
        d_p = grad @ _transposed(self.repeated("value")) * self.keep
        d = np.sum(grad * self.io(self.output), axis=-1, keepdims=True)
        d_s = np.where(self.visible, p * (d_p - d), np.float32(0))
        d_scaled = d_s
        if case.score_mod is not None:
            d_scaled = self.modified(backward=True, grad=d_scaled)
        if case.softcap is not None:
            d_scaled = d_scaled * kernel.softcap_slope(self)
        d_scaled = self.io(np.where(self.visible, d_scaled, 0))
        grad_key = kernel.scale_of_grad_key(case) * (_transposed(d_scaled) @ self.single("query"))
        grad_value = _transposed(self.io(p * self.keep)) @ grad
        arrays: dict[str, NDArray[Any]] = {
            "grad_query": scale * (d_scaled @ self.repeated("key")),
            "grad_key": kernel.sum_group(grad_key, case),
            "grad_value": kernel.sum_group(grad_value, case),
        }
        if case.bias is not None and case.bias_grad:
            arrays["grad_bias"] = kernel.sum_bias(self.io(d_s), case.shape_of(case.bias))
        if case.softmax is Softmax.LEARNABLE and self.sink is not None:
            at_sink = np.where(np.isneginf(self.lse), 0, np.exp(self.sink - self.lse))
            arrays["grad_sink"] = -np.sum(at_sink * d, axis=(0, 2, 3))
        return arrays


_NUMPY = {
    score_mod.Type.FLOAT: np.float32,
    score_mod.Type.INT: np.int32,
    score_mod.Type.BOOL: np.bool_,
}


def _transposed(array: NDArray[Any]) -> NDArray[Any]:
    return np.swapaxes(array, -1, -2)
