"""The arrays of one run, in the order in which a kernel computes them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import score_mod
from ...problem import Softmax
from ..case import Case, Inputs
from ..logits import Mask
from ..placement import problem_of
from ..rounding import round_to
from .arithmetic import Arithmetic, Floats


@dataclass(frozen=True, eq=False)
class Call:
    """The arrays of one run, ``[B, Hq, Sq, Skv]`` and ``[B, Hq, S, D]`` in float32."""

    kernel: Arithmetic
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
