"""cuDNN and the native executor, played by the oracle: for machines that have neither.

``FakeCudnn`` plans like the real session, but its plans are only described. Executing one checks
every operand against the description, computes with the oracle, and hands back the results. So
the whole of an adapter's cuDNN path runs anywhere: preparing operands, allocating results, packing
pointers by uid. The band is read from the graph's options, as cuDNN would read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend import Answer, Backend, ReferenceBackend
from ..cudnn.f16 import describe
from ..cudnn.graph import GraphSpec, Operand
from ..cudnn.rules import reasons
from ..device import DeviceSpec
from ..dtypes import DType
from ..fingerprint import fingerprint
from ..layout import Strides, canonical_strides
from ..mask import Alignment, Band
from ..plan import Plan
from ..problem import AttentionProblem, Direction
from ..reasons import Tier, Unsupported, Verdict
from ..tensor import VECTOR_BYTES
from .reference import Array, attention, attention_backward
from .tolerances import assert_close, error_scales


@dataclass(frozen=True)
class OperandView:
    """A device buffer as the executor is handed it.

    Attributes:
        array: its contents in the graph's order of axes; of any floating or integer NumPy type
            that holds them exactly (bfloat16 as float32). Of a result only the shape counts.
        strides: of the real memory, in elements.
        dtype: the real element type.
        alignment: of the real address, in bytes, a power of two; None if it is not known.
    """

    array: NDArray[Any]
    strides: Strides
    dtype: DType
    alignment: int | None = None


class RulesOnlyCudnn:
    """The cuDNN backend with nobody to probe: what passes its rules counts as supported."""

    name = "cudnn"
    rules_suffice = True

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        return reasons(problem, device, direction)

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        return Answer(Verdict.SUPPORTED, (), Tier.RULES, 0)


#: The backends to choose from while cuDNN is played by the fake.
FAKE_BACKENDS: Mapping[str, Backend] = {
    "cudnn": RulesOnlyCudnn(),
    "reference": ReferenceBackend(),
}


@dataclass
class FakeCudnn:
    """Plans and executes without cuDNN.

    Attributes:
        frontend_version: that its plans claim.
        plans: by fingerprint, every plan that was made.
        executed: the plan of every execution, in order.
    """

    frontend_version: str = "1.32.0"
    plans: dict[str, Plan] = field(default_factory=dict)
    executed: list[Plan] = field(default_factory=list)

    def plan(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Plan:
        """The plan of a problem: its real description and key, and no kernel."""
        plan = Plan(
            graph=describe(problem, device, direction),
            blob=b"fake",
            workspace_bytes=0,
            cudnn_version=device.cudnn_version or 0,
            frontend_version=self.frontend_version,
            sm=device.sm,
            sm_count=device.sm_count,
            fingerprint=fingerprint(problem, device, direction, self.frontend_version),
            engine="fake",
        )
        self.plans[plan.fingerprint] = plan
        return plan

    def execute(
        self, plan: Plan, operands: Mapping[int, OperandView], scalars: Mapping[int, float]
    ) -> dict[int, Array]:
        """Check the operands and compute the results: by uid, float64, of their operands' shapes.

        Args:
            plan: what to execute; its blob is not looked at.
            operands: by uid, all device buffers: inputs, constants and results.
            scalars: by uid, all scalars that are read from the host.

        Raises:
            AssertionError: an operand is missing, unknown, or not as the graph describes it (the
                text names role, uid and property of each fault); or a backward graph is given an
                output and statistics that its forward would not have computed.
        """
        graph = plan.graph
        faults = [*_operand_faults(plan, operands), *_scalar_faults(plan, scalars)]
        if faults:
            raise AssertionError("\n  ".join([f"wrong operands for {graph.operation}:", *faults]))
        self.executed.append(plan)
        compute = {"sdpa": _forward, "sdpa_backward": _backward}[graph.operation]
        values = {
            operand.role: np.asarray(operands[operand.uid].array, dtype=np.float64)
            for operand in plan.inputs
        }
        # The executor hands cuDNN a float32.
        scale = float(np.float32(scalars[graph.operand("scale").uid]))
        results = compute(graph, values, scale)
        return {operand.uid: results[operand.role] for operand in plan.outputs}


def _operand_faults(plan: Plan, operands: Mapping[int, OperandView]) -> Iterator[str]:
    described = {operand.uid: operand for operand in (*plan.inputs, *plan.outputs)}
    for uid, operand in described.items():
        if uid not in operands:
            yield f"{_name(operand)} is missing"
            continue
        for fault in _view_faults(operand, operands[uid]):
            yield f"{_name(operand)} has {fault}"
    for uid in operands.keys() - described.keys():
        yield f"uid {uid} is no operand of the graph"


def _view_faults(operand: Operand, view: OperandView) -> Iterator[str]:
    shape = tuple(view.array.shape)
    if shape != operand.shape:
        yield f"shape {list(shape)}, described {list(operand.shape)}"
    elif canonical_strides(shape, view.strides) != canonical_strides(shape, operand.strides):
        yield f"strides {list(view.strides)}, described {list(operand.strides)}"
    if view.dtype != operand.dtype:
        yield f"dtype {view.dtype}, described {operand.dtype}"
    if view.alignment is not None and view.alignment % VECTOR_BYTES:
        yield f"an address aligned to {view.alignment} bytes, needed {VECTOR_BYTES}"
    if operand.constant is not None and np.any(view.array != operand.constant):
        yield f"values other than the constant {operand.constant}"


def _scalar_faults(plan: Plan, scalars: Mapping[int, float]) -> Iterator[str]:
    described = {operand.uid: operand for operand in plan.scalars}
    for uid, operand in described.items():
        if uid not in scalars:
            yield f"{_name(operand)} is missing"
    for uid in scalars.keys() - described.keys():
        yield f"uid {uid} is no scalar of the graph"


def _name(operand: Operand) -> str:
    return f"{operand.role} (uid {int(operand.uid)})"


def _forward(graph: GraphSpec, values: Mapping[str, Array], scale: float) -> dict[str, Array]:
    band = _band(graph)
    output, lse = attention(values["query"], values["key"], values["value"], band=band, scale=scale)
    return {"output": output, "stats": lse[..., None]}


def _backward(graph: GraphSpec, values: Mapping[str, Array], scale: float) -> dict[str, Array]:
    band = _band(graph)
    operands = (values["query"], values["key"], values["value"])
    exact = attention(*operands, band=band, scale=scale)
    errors = error_scales(*operands, dtype=graph.io_dtype, band=band, scale=scale)
    _check_forwarded("output", values["output"], exact.output, errors.output)
    _check_forwarded("stats", values["stats"][..., 0], exact.lse, errors.lse)
    gradients = attention_backward(*operands, values["grad_output"], band=band, scale=scale)
    return gradients._asdict()


def _check_forwarded(name: str, given: Array, exact: Array, scale: Array) -> None:
    """Raise unless a backward graph is given what its forward computed, NaN for NaN."""
    scale = np.broadcast_to(scale, exact.shape)
    if np.isfinite(given[np.isnan(exact)]).any():
        raise AssertionError(f"{name} is finite where its forward gives NaN")
    # A row without visible keys is known, but NaN in its operands leaves its error scale unknown.
    known = ~(np.isnan(exact) | np.isnan(scale))
    assert_close(name, given[known], exact[known], scale[known])


def _band(graph: GraphSpec) -> Band:
    """The band that cuDNN would apply: its left bound counts the diagonal, ours does not."""
    options = dict(graph.options)
    alignment = Alignment(str(options.pop("diagonal_alignment", Alignment.TOP_LEFT)))
    right = _bound(options.pop("diagonal_band_right_bound", None))
    left = _bound(options.pop("diagonal_band_left_bound", None))
    if options.pop("use_padding_mask", False):
        _check_full_lengths(graph)
    unknown = options.keys() - {"generate_stats", "use_deterministic_algorithm"}
    if unknown:
        raise AssertionError(f"the fake does not know the options {sorted(unknown)}")
    return Band(None if left is None else left - 1, right, alignment)


def _bound(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    raise AssertionError(f"a bound is an int or None, not {value!r}")


def _check_full_lengths(graph: GraphSpec) -> None:
    for lengths, tensor in (("seq_len_q", "query"), ("seq_len_kv", "key")):
        given, tokens = graph.operand(lengths).constant, graph.operand(tensor).shape[2]
        if given != tokens:
            raise AssertionError(
                f"{lengths} is {given}; the fake knows full lengths only, {tokens}"
            )
