"""Attention as two JAX primitives, lowered for each platform to the backend chosen for it.

A primitive says only what a call means. Which backend runs it is decided when the program is
lowered, because only then is the platform known: one traced function may be compiled for a CPU and
for a GPU of the same process, or exported for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

from sdpa_core import AttentionProblem, Band, Direction

from . import convert
from .convert import Shaped
from .dispatch import Selection, prepare
from .manual import like
from .reference import accumulation_type


@dataclass(frozen=True, slots=True)
class Call:
    """All that JAX must know of a call besides its arrays: the parameter of the primitives.

    Attributes:
        band: which keys a query sees.
        scale: factor of the logits.
        deterministic: gradients must be bitwise equal from run to run.
        training: a backward pass follows, so the log-sum-exp is kept.
        return_lse: the caller wants the log-sum-exp.
        selection: what decides between backends.
    """

    band: Band
    scale: float
    deterministic: bool
    return_lse: bool
    selection: Selection
    training: bool = False

    @property
    def needs_lse(self) -> bool:
        return self.training or self.return_lse

    def problem(self, query: Shaped, key: Shaped, value: Shaped) -> AttentionProblem:
        """The problem that this call poses for arrays of these shapes and types."""
        return AttentionProblem.of(
            *convert.specs(query, key, value),
            band=self.band,
            training=self.training,
            return_lse=self.return_lse,
            deterministic=self.deterministic,
        )


def forward(call: Call, query: Array, key: Array, value: Array) -> tuple[Array, ...]:
    """The output ``[B, T, N, Hv]`` and, if the call needs it, the log-sum-exp ``[B, N, T]``.

    Args:
        call: what to compute.
        query: ``[B, T, N, H]``.
        key: ``[B, S, K, H]``.
        value: ``[B, S, K, Hv]``.
    """

    def run(*operands: Array) -> tuple[Array, ...]:
        if _is_empty(*operands):
            fillings: tuple[float, ...] = (0.0, -jnp.inf) if call.needs_lse else (0.0,)
            avals = _forward_avals(*map(jax.typeof, operands), call=call)
            return tuple(
                jnp.full(aval.shape, filling, aval.dtype)
                for aval, filling in zip(avals, fillings, strict=True)
            )
        return tuple(forward_p.bind(*operands, call=call))

    return _with_vmap(run)(query, key, value)


def backward(
    call: Call,
    query: Array,
    key: Array,
    value: Array,
    output: Array,
    lse: Array,
    grad_output: Array,
) -> tuple[Array, ...]:
    """Gradients of query, key and value, each of its operand's shape and type.

    Args:
        call, query, key, value: as for ``forward``.
        output, lse: what it returned.
        grad_output: ``[B, T, N, Hv]``.
    """

    def run(*operands: Array) -> tuple[Array, ...]:
        if _is_empty(*operands[:3]):
            return tuple(jnp.zeros_like(operand) for operand in operands[:3])
        return tuple(backward_p.bind(*operands, call=call))

    return _with_vmap(run)(query, key, value, output, lse, grad_output)


def _is_empty(query: Array, key: Array, value: Array) -> bool:
    """No row of the output, or no key: the results are constants, and no backend is asked."""
    return 0 in query.shape[:3] or 0 in key.shape[:3]


def _with_vmap(run: Callable[..., tuple[Array, ...]]) -> Callable[..., tuple[Array, ...]]:
    """``run``, to which an axis mapped by ``jax.vmap`` is more batch, mapped again or not."""
    batched = custom_vmap(run)

    @batched.def_vmap
    def fold(
        axis_size: int, in_batched: Sequence[bool], *operands: Array
    ) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
        folded = (
            _folded(operand, axis_size, is_batched)
            for operand, is_batched in zip(operands, in_batched, strict=True)
        )
        results = _with_vmap(run)(*folded)
        batch = operands[0].shape[1 if in_batched[0] else 0]
        return (
            tuple(x.reshape(axis_size, batch, *x.shape[1:]) for x in results),
            (True,) * len(results),
        )

    return batched


def _folded(operand: Array, axis_size: int, is_batched: bool) -> Array:
    if not is_batched:
        operand = jnp.broadcast_to(operand, (axis_size, *operand.shape))
    _, batch, *rest = operand.shape
    return operand.reshape(axis_size * batch, *rest)


def _forward_avals(query: Any, key: Any, value: Any, *, call: Call) -> list[ShapedArray]:
    del key
    batch, tokens, heads, _ = query.shape
    output = like(query, (batch, tokens, heads, value.shape[-1]), query.dtype)
    lse = like(query, (batch, heads, tokens), accumulation_type(query.dtype))
    return [output, lse] if call.needs_lse else [output]


def _backward_avals(query: Any, key: Any, value: Any, *_: Any, call: Call) -> list[ShapedArray]:
    del call
    return [like(operand, operand.shape, operand.dtype) for operand in (query, key, value)]


def _run_forward(run: Any, query: Array, key: Array, value: Array, *, call: Call) -> list[Array]:
    results = run({"query": query, "key": key, "value": value})
    return [results["output"], *([results["stats"][..., 0]] if call.needs_lse else [])]


def _run_backward(run: Any, *operands: Array, call: Call) -> list[Array]:
    del call
    roles = ("query", "key", "value", "output", "stats", "grad_output")
    given = dict(zip(roles, operands, strict=True))
    given["stats"] = given["stats"][..., None]
    results = run(given)
    return [results[role] for role in ("grad_query", "grad_key", "grad_value")]


def _rule(
    direction: Direction, body: Callable[..., list[Array]], platform: str | None
) -> Callable[..., Any]:
    """The lowering of a primitive for a platform, or for all that have no rule of their own."""

    def rule(ctx: mlir.LoweringRuleContext, *operands: Any, call: Call) -> Any:
        run = prepare(
            call.problem(*ctx.avals_in[:3]),
            platform or _other_platform(ctx),
            direction,
            call.selection,
            call.scale,
        )

        def traced(*arrays: Array) -> list[Array]:
            return body(run, *arrays, call=call)

        return mlir.lower_fun(traced, multiple_results=True)(ctx, *operands)

    return rule


def _other_platform(ctx: mlir.LoweringRuleContext) -> str:
    """The platform that is lowered for; of several, all without a rule, one stands for the rest."""
    platforms = ctx.platforms or ctx.module_context.platforms
    return str(next(name for name in platforms if name != "cuda"))


def _refuse_derivative(*_: Any, call: Call) -> NoReturn:
    # The first derivative is ``vjp``'s, which never differentiates a primitive.
    raise NotImplementedError("attention has no second derivative")


def _primitive(
    name: str,
    direction: Direction,
    avals: Callable[..., list[ShapedArray]],
    body: Callable[..., list[Array]],
) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_abstract_eval(avals)

    def bind(*operands: Array, call: Call) -> list[Array]:
        return list(primitive.bind(*operands, call=call))

    compiled = jax.jit(bind, static_argnames="call")

    @primitive.def_impl
    def run_now(*operands: Array, call: Call) -> list[Array]:
        # Without this, jit would come back here under jax.disable_jit().
        with jax.disable_jit(False):
            return compiled(*operands, call=call)

    ad.primitive_jvps[primitive] = _refuse_derivative
    mlir.register_lowering(primitive, _rule(direction, body, None))
    mlir.register_lowering(primitive, _rule(direction, body, "cuda"), platform="cuda")
    return primitive


#: ``query, key, value -> output[, lse]``.
forward_p = _primitive("sdpa_forward", Direction.FORWARD, _forward_avals, _run_forward)

#: ``query, key, value, output, lse, grad_output -> grad_query, grad_key, grad_value``.
backward_p = _primitive("sdpa_backward", Direction.BACKWARD, _backward_avals, _run_backward)
