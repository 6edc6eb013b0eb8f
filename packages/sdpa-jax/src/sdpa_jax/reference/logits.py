"""From products of queries and keys to masked logits, and gradients back through the same steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from sdpa_core import AttentionProblem
from sdpa_core.alibi import alibi_slopes
from sdpa_core.score_mod import (
    Axis,
    Constant,
    Expression,
    Grad,
    Index,
    Scalar,
    Score,
    Tensor,
    evaluate,
    gradient,
)

from ..score_ops import operations
from .blocks import Blocks
from .masks import Masks

# Tensor cores of GPUs and matrix units of TPUs would otherwise round float32 to 10 bits or fewer.
einsum: Callable[..., Array] = partial(jnp.einsum, precision=lax.Precision.HIGHEST)

_AXES = tuple(Axis)


class Block(NamedTuple):
    """A block of query rows.

    Attributes:
        start: the first row.
        pairs: by role, the block's part ``[b, h, 1 or rows, s]`` of operands that are broadcast to
            ``[B, N, T, S]``.
    """

    start: Array
    pairs: Mapping[str, Array]


class Steps(NamedTuple):
    """What the steps of a block gave, ``[B, N, rows, S]``.

    Attributes:
        products: ``scale * q.k``.
        capped: after the softcap.
        logits: after everything, -inf where hidden.
    """

    products: Array
    capped: Array
    logits: Array


@dataclass(frozen=True, slots=True)
class Logits:
    """The steps for one problem.

    Attributes:
        problem: of dense operands, which may have lengths.
        scalars: the scale, then the numbers that ``score_mod`` takes.
        blocks: how rows are cut.
        masks: who sees whom.
        pairs: by role, operands that are broadcast to ``[B, N, T, S]``: bias, auxiliary tensors.
        slopes: of ALiBi, ``[1 or B, N, 1, 1]``; None for none.
    """

    problem: AttentionProblem
    scalars: tuple[float, ...]
    blocks: Blocks
    masks: Masks
    pairs: Mapping[str, Array]
    slopes: Array | None

    @classmethod
    def of(
        cls,
        problem: AttentionProblem,
        scalars: tuple[float, ...],
        blocks: Blocks,
        masks: Masks,
        operands: Mapping[str, Array],
    ) -> Logits:
        pairs = {name: operands[name] for name in operands if name == "bias" or _is_auxiliary(name)}
        slopes = operands.get("alibi_slopes")
        if problem.alibi:
            standard = alibi_slopes(problem.heads)
            slopes = jnp.asarray(standard, jnp.float32).reshape(1, -1, 1, 1)
        return cls(problem, scalars, blocks, masks, pairs, slopes)

    @property
    def split_pairs(self) -> dict[str, Array]:
        """Those operands by pairs that have rows of their own, cut into blocks."""
        return {
            name: self.blocks.split_pairs(array)
            for name, array in self.pairs.items()
            if array.shape[2] != 1
        }

    def block(self, start: Array, pairs: Mapping[str, Array]) -> Block:
        return Block(start, {**self.pairs, **pairs})

    def scaled(self, query: Array) -> Array:
        """``split(query)`` times the scale.

        Before the product and not after it: XLA contracts ``exp(scale * product - peak)`` to a
        fused multiply-add, whose product is not the rounded one that ``peak`` was taken from. The
        error grows with the logits until the exponential overflows (tests/test_as_users_compile).
        """
        return self.blocks.split(query) * self.scalars[0]

    def steps(self, block: Block, queries: Array, keys: Array) -> Steps:
        """All steps of one block's scaled rows ``[B, K, N // K, rows, H]``."""
        wide = self.blocks.wide
        products = self.blocks.flat(einsum("bkgth,bskh->bkgts", queries, keys))
        cap, score_mod = self.problem.softcap, self.problem.score_mod
        capped = products if cap is None else jnp.tanh(products / cap) * cap
        logits = capped
        if score_mod is not None:
            logits = self._evaluate(score_mod.expression, block, capped)
        if "bias" in block.pairs:
            logits = logits + block.pairs["bias"].astype(wide)
        if self.slopes is not None:
            distance = abs(self.masks.distance(block.start)).astype(wide)
            logits = logits - self.slopes.astype(wide) * distance
        visible = self.masks.visible(block.start)
        if visible is not None:
            logits = jnp.where(visible, logits, -jnp.inf)
        return Steps(products, capped, logits)

    def back(self, block: Block, steps: Steps, grad_logits: Array) -> Array:
        """The gradient of the products from that of the logits before the bias was added."""
        cap, score_mod = self.problem.softcap, self.problem.score_mod
        grad = grad_logits
        if score_mod is not None:
            derivative = score_mod.gradient or gradient(score_mod.expression)
            grad = self._evaluate(derivative, block, steps.capped, grad)
        if cap is not None:
            grad = grad * (1.0 - jnp.tanh(steps.products / cap) ** 2)
        if score_mod is None:
            return grad
        # 0 times a slope that is infinite or undefined where nobody looks.
        return jnp.where(steps.logits > -jnp.inf, grad, 0.0)

    def _evaluate(
        self, expression: Expression, block: Block, score: Array, grad: Array | None = None
    ) -> Array:
        wide = self.blocks.wide

        def leaf(node: Any) -> Array:
            match node:
                case Score():
                    return score
                case Grad():
                    assert grad is not None
                    return grad
                case Index(axis):
                    return self.masks.index(_AXES.index(axis), block.start, score.shape)
                case Tensor(position):
                    array = block.pairs[f"score_mod_{position}"]
                    inexact = jnp.issubdtype(array.dtype, jnp.floating)
                    return array.astype(wide) if inexact else array
                case Scalar(position):
                    return jnp.asarray(jnp.float32(self.scalars[1 + position]), wide)
                case Constant(value):
                    exact = isinstance(value, bool | int)
                    return jnp.asarray(value) if exact else jnp.asarray(value, wide)
            raise TypeError(f"{node!r} is no leaf")

        value = evaluate(expression, operations(wide), leaf)
        return jnp.broadcast_to(value, score.shape).astype(wide)


def _is_auxiliary(role: str) -> bool:
    return role.startswith("score_mod_")
