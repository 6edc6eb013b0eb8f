"""Which backend would run a call, and why not the others."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import jax

from sdpa_core import Decision, DeviceSpec, check_operands, flag
from sdpa_core.pending import PENDING, refuse_pending

from . import convert
from .device import default_platform, resolve
from .functional import call_of, dot_product_attention


def explain(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    device: DeviceSpec | jax.Device | str | None = None,
    training: bool = True,
    probe: bool = False,
    **options: Any,
) -> Decision:
    """The choice of a backend for a call of ``dot_product_attention`` with these arguments.

    Runs nothing. ``print`` shows the decision as a report.

    Args:
        query, key, value: arrays, tracers or ``jax.ShapeDtypeStruct``.
        bias, mask: as for ``dot_product_attention``.
        device: a name (``"h200"``, ``"cpu"``), a ``jax.Device``, a ``DeviceSpec``, or None: the
            default device of JAX.
        training: whether a backward pass follows; JAX does not tell beforehand.
        probe: also ask cuDNN, which builds a plan and takes seconds; it needs no GPU. Otherwise
            its rules answer alone.
        **options: the other arguments of ``dot_product_attention``.

    Raises:
        TypeError, ValueError: as ``dot_product_attention``; or ``device`` is not known.
        NoBackendError: an argument is not implemented yet. That no backend supports the problem is
            part of the answer, see ``Decision.is_possible``.
    """
    known = signature(dot_product_attention)
    for name in options:
        if name not in known.parameters:
            raise TypeError(f"dot_product_attention has no argument {name!r}")
    bound = known.bind(query, key, value, bias, mask, **options)
    bound.apply_defaults()
    arguments = bound.arguments
    refuse_pending("explain", {name: arguments[name] for name in arguments if name in PENDING})
    for name, operand in (("query", query), ("key", key), ("value", value)):
        if not hasattr(operand, "shape") or not hasattr(operand, "dtype"):
            raise TypeError(f"{name} is of type {type(operand).__name__}; expected an array")
    operands = jax.eval_shape(
        lambda *given: convert.of_rank_4(convert.arrays(*given)), query, key, value
    )
    check_operands(*convert.specs(*operands))
    _, call = call_of(
        operands.query.shape[-1],
        **{name: arguments[name] for name in signature(call_of).parameters if name in arguments},
    )
    selection = call.selection
    spec = selection.device_spec(default_platform()) if device is None else resolve(device)
    problem = replace(call, training=flag("training", training)).problem(*operands)
    return selection.decide(problem, spec, probe=probe)
