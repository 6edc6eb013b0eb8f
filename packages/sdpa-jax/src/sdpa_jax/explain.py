"""Which backend would run a call, and why not the others."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import jax

from sdpa_core import Decision, DeviceSpec, check_operands
from sdpa_core.pending import PENDING, refuse_pending

from . import convert
from .device import default_platform, named
from .functional import call_of, dot_product_attention


def explain(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    device: DeviceSpec | str | None = None,
    training: bool = True,
    probe: bool = False,
    **options: Any,
) -> Decision:
    """The choice of a backend for a call of ``dot_product_attention`` with these arguments.

    Runs nothing. ``print`` shows the decision as a report.

    Args:
        query, key, value: arrays, tracers or ``jax.ShapeDtypeStruct``.
        bias, mask: as for ``dot_product_attention``.
        device: a name (``"h200"``), a ``DeviceSpec``, or None: the default device of JAX.
        training: whether a backward pass follows; JAX does not tell beforehand.
        probe: also ask cuDNN, which builds a plan and takes seconds; it needs no GPU. Otherwise
            its rules answer alone.
        **options: the other arguments of ``dot_product_attention``.

    Raises:
        TypeError, ValueError: as ``dot_product_attention``; or ``device`` is not known.
        NoBackendError: an argument is not implemented yet. That no backend supports the problem is
            part of the answer, see ``Decision.is_possible``.
    """
    bound = signature(dot_product_attention).bind(query, key, value, bias, mask, **options)
    bound.apply_defaults()
    arguments = bound.arguments
    refuse_pending("explain", {name: arguments[name] for name in arguments if name in PENDING})
    operands = jax.eval_shape(
        lambda *given: convert.of_rank_4(convert.arrays(*given)), query, key, value
    )
    check_operands(*convert.specs(*operands))
    _, call = call_of(
        operands.query.shape[-1],
        **{name: arguments[name] for name in signature(call_of).parameters if name in arguments},
    )
    selection = call.selection
    if device is None:
        spec = selection.device_spec(default_platform())
    else:
        spec = named(device) if isinstance(device, str) else device
    problem = replace(call, training=training).problem(*operands)
    return selection.decide(problem, spec, probe=probe)
