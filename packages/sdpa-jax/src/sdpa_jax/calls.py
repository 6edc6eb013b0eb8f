"""Attention as two JAX primitives, lowered for each platform to the backend chosen for it.

A primitive says only what a call means. Which backend runs it is decided when the program is
lowered, because only then is the platform known: one traced function may be compiled for a CPU and
for a GPU of the same process, or exported for both.

Operands and results are arrays in the order of their roles, ``AttentionProblem.inputs``,
``results`` and ``gradients``:

* query, key, value, output and their gradients: ``[B, T, N, H]``; packed ``[T, N, H]``; pools of
  pages ``[pages, page size, K, H]``;
* bias, and auxiliary tensors of ``score_mod``: broadcastable to ``[B, N, T, S]``;
  ``alibi_slopes``: float32 ``[1 or B, N, 1, 1]``; ``sink``: ``[N]`` of the type of
  ``stats``;
* ``seq_lens_*``: int32 ``[B]``; ``cu_seqlens_*``: int32 ``[B + 1]``; ``page_table_*``: int32
  ``[B, pages]``; ``dropout_seed``, ``dropout_offset``: uint32 ``[2]``, low word first;
* ``stats``: the log-sum-exp ``[B, N, T]``, packed ``[T, N]``; ``max_logit``: of the same type,
  ``[B, N]``, of packed queries ``[1, N]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir

from sdpa_core import AttentionProblem, Direction

from . import folding
from .call import Call
from .convert import accumulation_type
from .dispatch import prepare
from .empty import empty_results
from .manual import like

_Results = tuple[Array, ...]


def forward(call: Call, *operands: Array) -> _Results:
    """``call.results`` of operands in the order of ``call.roles``."""
    return _vmappable(_forward, call, call.roles, call.results)(*operands)


def backward(call: Call, *operands: Array) -> _Results:
    """``call.gradients``, each of its operand's shape and type.

    Args:
        call: as for ``forward``.
        *operands: those of ``forward``, its output and log-sum-exp, and the output's gradient.
    """
    return _vmappable(_backward, call, call.backward_roles, call.gradients)(*operands)


def _forward(call: Call, *operands: Array) -> _Results:
    problem = call.problem(*operands)
    if problem.is_empty:
        avals = _forward_avals(*map(jax.typeof, operands), call=call)
        return empty_results(problem, dict(zip(call.roles, operands, strict=True)), avals)
    return tuple(forward_p.bind(*operands, call=call))


def _backward(call: Call, *operands: Array) -> _Results:
    if call.problem(*operands).is_empty:
        given = dict(zip(call.backward_roles, operands, strict=True))
        return tuple(jnp.zeros_like(given[call.operand_of(role)]) for role in call.gradients)
    return tuple(backward_p.bind(*operands, call=call))


def _vmappable(
    run: Callable[..., _Results], call: Call, roles: Sequence[str], results: Sequence[str]
) -> Callable[..., _Results]:
    """``run`` of a call, mapped by ``jax.vmap`` as more batch or one example after the other."""
    batched = custom_vmap(partial(run, call))

    @batched.def_vmap
    def rule(
        axis_size: int, in_batched: Sequence[bool], *operands: Array
    ) -> tuple[_Results, tuple[bool, ...]]:
        again = _vmappable(run, call, roles, results)
        mapped = dict(zip(roles, in_batched, strict=True))
        given = dict(zip(roles, operands, strict=True))
        may_fold = folding.folds(
            mapped,
            has_score_mod=call.score_mod is not None,
            gives_sink_gradient="grad_sink" in results,
        )
        if may_fold:
            found = _folded(again, given, mapped, axis_size, results)
        else:
            found = _one_by_one(again, operands, in_batched)
        return found, (True,) * len(found)

    return batched


def _folded(
    run: Callable[..., _Results],
    operands: dict[str, Array],
    mapped: dict[str, bool],
    axis_size: int,
    results: Sequence[str],
) -> _Results:
    each = ("bias",) if "grad_bias" in results else ()
    found = run(*folding.fold(operands, mapped, axis_size, each))
    entries = {role: operands["query"].shape[int(mapped["query"])] for role in results}
    if each:
        entries["grad_bias"] = operands["bias"].shape[int(mapped["bias"])]
    return tuple(
        folding.unfold(role, array, axis_size, entries[role])
        for role, array in zip(results, found, strict=True)
    )


def _one_by_one(
    run: Callable[..., _Results], operands: Sequence[Array], in_batched: Sequence[bool]
) -> _Results:
    def one(mapped: list[Array]) -> _Results:
        own = iter(mapped)
        return run(
            *(
                next(own) if is_mapped else x
                for x, is_mapped in zip(operands, in_batched, strict=True)
            )
        )

    mapped = [x for x, is_mapped in zip(operands, in_batched, strict=True) if is_mapped]
    found: _Results = jax.lax.map(one, mapped)
    return found


def _forward_avals(*avals: Any, call: Call) -> list[ShapedArray]:
    query, value = avals[0], avals[2]
    rows, heads = query.shape[:-2], query.shape[-2]
    stats = (*rows, heads) if call.is_packed_q else (rows[0], heads, rows[1])
    shapes = {
        "output": ((*rows, heads, value.shape[-1]), query.dtype),
        "stats": (stats, accumulation_type(query.dtype)),
        "max_logit": ((1 if call.is_packed_q else rows[0], heads), accumulation_type(query.dtype)),
    }
    return [like(query, *shapes[role]) for role in call.results]


def _backward_avals(*avals: Any, call: Call) -> list[ShapedArray]:
    given = dict(zip(call.backward_roles, avals, strict=True))
    operands = (given[call.operand_of(role)] for role in call.gradients)
    return [like(operand, operand.shape, operand.dtype) for operand in operands]


def _rule(direction: Direction, platform: str | None) -> Callable[..., Any]:
    """The lowering of a primitive for a platform, or for all that have no rule of their own."""
    forwards = direction is Direction.FORWARD

    def rule(ctx: mlir.LoweringRuleContext, *operands: Any, call: Call) -> Any:
        roles, wanted = (
            (call.roles, call.results) if forwards else (call.backward_roles, call.gradients)
        )
        problem: AttentionProblem = call.problem(*ctx.avals_in)
        run = prepare(problem, platform or _other_platform(ctx), direction, call)

        def traced(*arrays: Array) -> list[Array]:
            results = run(dict(zip(roles, arrays, strict=True)))
            return [results[role] for role in wanted]

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
    name: str, direction: Direction, avals: Callable[..., list[ShapedArray]]
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
    mlir.register_lowering(primitive, _rule(direction, None))
    mlir.register_lowering(primitive, _rule(direction, "cuda"), platform="cuda")
    return primitive


#: Operands of ``call.roles`` to ``call.results``.
forward_p = _primitive("sdpa_forward", Direction.FORWARD, _forward_avals)

#: Operands of ``call.backward_roles`` to ``call.gradients``.
backward_p = _primitive("sdpa_backward", Direction.BACKWARD, _backward_avals)
