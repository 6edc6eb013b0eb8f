"""Which backend would run a call, and why not the others."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import jax
import numpy as np

from sdpa_core import Decision, DeviceSpec, flag

from . import attend, functional, paged, varlen
from .call import Call
from .dense import dense
from .device import default_platform, resolve


def explain(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    device: DeviceSpec | jax.Device | str | None = None,
    training: bool = True,
    frozen: tuple[str, ...] = (),
    probe: bool = False,
    **options: Any,
) -> Decision:
    """The choice of a backend for a call of ``dot_product_attention`` with these arguments.

    Runs nothing. ``print`` shows the decision as a report.

    Args:
        query, key, value: arrays, tracers or ``jax.ShapeDtypeStruct``; all other arrays may be
            such, too.
        bias, mask: as for ``dot_product_attention``.
        device: a name (``"h200"``, ``"cpu"``), a ``jax.Device``, a ``DeviceSpec``, or None: the
            default device of JAX.
        training: whether a backward pass follows; JAX does not tell beforehand.
        frozen: which of ``bias`` and ``sink`` get no gradient in training.
        probe: also ask cuDNN, which builds a plan and takes seconds; it needs no GPU. Otherwise
            its rules answer alone.
        **options: the other arguments of ``dot_product_attention``.

    Raises:
        TypeError, ValueError: as ``dot_product_attention``; or ``device`` is not known.
        NoBackendError: an argument is not implemented yet. That no backend supports the problem is
            part of the answer, see ``Decision.is_possible``.
    """

    def prepare(**arguments: Any) -> attend.Prepared:
        return dense(**arguments).call

    arguments = _bound(functional.dot_product_attention, (query, key, value, bias, mask), options)
    return _explained(prepare, arguments, device, training, frozen, probe)


def explain_varlen(
    *operands: Any,
    device: DeviceSpec | jax.Device | str | None = None,
    training: bool = True,
    frozen: tuple[str, ...] = (),
    probe: bool = False,
    **options: Any,
) -> Decision:
    """The choice of a backend for a call of ``varlen_attention`` with these arguments.

    As ``explain``. ``max_q`` and ``max_k`` are ints, or part of a ``SequenceLayout``.
    """

    def prepare(**arguments: Any) -> attend.Prepared:
        return varlen.prepared(**arguments)

    arguments = _bound(varlen.varlen_attention, operands, options)
    return _explained(prepare, arguments, device, training, frozen, probe)


def explain_paged(
    *operands: Any,
    device: DeviceSpec | jax.Device | str | None = None,
    probe: bool = False,
    **options: Any,
) -> Decision:
    """The choice of a backend for a call of ``paged_attention`` with these arguments.

    As ``explain``; there is no training.
    """
    arguments = _bound(paged.paged_attention, operands, options)
    return _explained(paged.prepared, arguments, device, False, (), probe)


def _bound(
    function: Callable[..., Any], operands: tuple[Any, ...], options: dict[str, Any]
) -> dict[str, Any]:
    """All arguments of a call by name."""
    known = signature(function)
    for name in options:
        if name not in known.parameters:
            raise TypeError(f"{function.__name__} has no argument {name!r}")
    bound = known.bind(*operands, **options)
    bound.apply_defaults()
    return dict(bound.arguments)


def _explained(
    prepare: Callable[..., attend.Prepared],
    arguments: dict[str, Any],
    device: Any,
    training: object,
    frozen: tuple[str, ...],
    probe: bool,
) -> Decision:
    for name in frozen:
        if name not in _TRAINABLE:
            raise ValueError(f"frozen names {name!r}; expected names among {_TRAINABLE}")
    trains = flag("training", training)
    wanted = tuple(
        name for name in _TRAINABLE if name not in frozen and arguments.get(name) is not None
    )
    call, operands = _traced(prepare, arguments)
    if trains:
        call = attend.for_training(call, wanted)
    selection = call.selection
    spec = selection.device_spec(default_platform()) if device is None else resolve(device)
    return selection.decide(call.problem(*operands), spec, probe=probe)


_TRAINABLE = ("bias", "sink")

#: Numbers that must be concrete, so that they are not traced.
_CONCRETE = frozenset(
    ("scale", "softcap", "dropout_rate", "max_q", "max_k", "window", "local_window_size")
)


def _is_array(given: object) -> bool:
    """Whether it stands for an array; NumPy's scalars are numbers and flags."""
    is_shaped = hasattr(given, "shape") and hasattr(given, "dtype")
    return is_shaped and not isinstance(given, np.generic)


def _traced(
    prepare: Callable[..., attend.Prepared], arguments: dict[str, Any]
) -> tuple[Call, list[Any]]:
    """The call and the shapes of its operands; arrays may be mere shapes."""
    for name in ("query", "key", "value", "key_pages", "value_pages"):
        operand = arguments.get(name)
        if name in arguments and not _is_array(operand):
            raise TypeError(
                f"{name} is of type {type(operand).__name__}; expected a jax.Array, a "
                f"numpy.ndarray or a jax.ShapeDtypeStruct"
            )
    leaves, tree = jax.tree.flatten(
        {name: x for name, x in arguments.items() if name not in _CONCRETE}
    )
    is_array = [_is_array(leaf) for leaf in leaves]
    concrete = {name: arguments[name] for name in _CONCRETE if name in arguments}
    calls = []

    def run(*arrays: Any) -> tuple[Any, ...]:
        given = iter(arrays)
        own = [next(given) if a else leaf for a, leaf in zip(is_array, leaves, strict=True)]
        prepared = prepare(**jax.tree.unflatten(tree, own), **concrete)
        calls.append(prepared.call)
        return prepared.operands

    arrays = [leaf for leaf, a in zip(leaves, is_array, strict=True) if a]
    shapes = jax.eval_shape(run, *arrays)
    return calls[0], list(shapes)
