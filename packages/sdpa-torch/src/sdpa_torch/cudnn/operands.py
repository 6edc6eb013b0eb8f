"""A plan's operands from the caller's tensors, packed in ascending uid and launched."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

import torch
from torch import Tensor

from sdpa_core import AttentionProblem, Plan
from sdpa_core.cudnn.graph import Derived, Operand, OperandKind, Rule
from sdpa_core.cudnn.memory import kept, memory_spec, on_query_side

from ..convert import TORCH_DTYPES, misaligned
from .runtime import Runtime

#: Makes an operand from the call's tensors.
_Maker = Callable[[tuple[Tensor, ...]], Tensor]


class Launch:
    """A loaded plan with what every launch of it needs.

    Args:
        plan: what to launch.
        problem: whose plan it is; its memory may differ from the declared dimensions.
        roles: names of the tensors that a call brings, in order.
        where, runtime: the device, and who launches there.
    """

    def __init__(
        self,
        plan: Plan,
        problem: AttentionProblem,
        roles: tuple[str, ...],
        where: torch.device,
        runtime: Runtime,
    ) -> None:
        self._where = where
        self._runtime = runtime
        self._execute = runtime.load(plan, where)
        self._workspace_bytes = plan.workspace_bytes
        self._scalars = _host_scalars(plan)
        memory = [(operand, memory_spec(operand, problem)) for operand in plan.outputs]
        self._results = tuple(
            (spec.shape, spec.strides, TORCH_DTYPES[spec.dtype]) for _, spec in memory
        )
        self._kept = tuple(
            (place, *wanted)
            for place, operand in enumerate(plan.outputs)
            if (wanted := kept(operand, problem)) is not None
        )
        self.roles = tuple(operand.role for operand in plan.outputs)
        self._larger = tuple(
            (roles.index(operand.role), operand.shape, operand.strides)
            for operand in plan.inputs
            if operand.role in roles and _is_larger(operand, problem)
        )
        made = [o for o in plan.inputs if o.constant is not None or o.derived is not None]
        self._makers = tuple(_maker(operand, roles, where) for operand in made)
        available = [*roles, *self.roles, *(operand.uid for operand in made)]
        bound = [o for o in plan.graph.operands if o.kind is not OperandKind.HOST_SCALAR]
        order = [available.index(o.uid if o in made else o.role) for o in bound]
        # In order as they are: the common case, spared a permutation.
        self._pack = None if order == list(range(len(available))) else itemgetter(*order)

    def __call__(self, tensors: tuple[Tensor, ...], scalars: tuple[float, ...]) -> list[Tensor]:
        """Results, in ascending uid."""
        results = [
            torch.empty_strided(shape, strides, dtype=dtype, device=self._where)
            for shape, strides, dtype in self._results
        ]
        workspace = None
        if self._workspace_bytes:
            workspace = torch.empty(self._workspace_bytes, dtype=torch.uint8, device=self._where)
        if self._larger:
            tensors = self._filled_up(tensors)
        operands = (*tensors, *results)
        if self._makers:
            # Made anew: a kept tensor would need events between streams, and would have to
            # outlive every CUDA graph that captured its address.
            operands += tuple([make(tensors) for make in self._makers])
        if self._pack is not None:
            operands = self._pack(operands)
        if self._scalars is not None:
            scalars = tuple(
                scalars[at] if constant is None else constant for at, constant in self._scalars
            )
        self._execute(operands, scalars, workspace, self._runtime.stream(self._where))
        for place, batch, rows in self._kept:
            results[place] = results[place][:batch, :, :rows]
        return results

    def _filled_up(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The tensors, those that are declared with more rows copied into zeros."""
        result = list(tensors)
        for place, shape, strides in self._larger:
            given = tensors[place]
            whole = torch.empty_strided(shape, strides, dtype=given.dtype, device=self._where)
            whole.zero_()[:, :, : given.shape[2]] = given
            result[place] = whole
        return tuple(result)


def _is_larger(operand: Operand, problem: AttentionProblem) -> bool:
    """Whether the graph declares more rows of a dense operand than there are, to be ignored."""
    dense = operand.ragged is None and on_query_side(operand.role)
    return dense and operand.shape[2] != problem.tokens_q


def _host_scalars(plan: Plan) -> tuple[tuple[int, float | None], ...] | None:
    """For each host scalar which of the caller's it is, or its constant; None: just the scale."""
    if [operand.role for operand in plan.scalars] == ["scale"]:
        return None
    return tuple((_number(o.role), o.constant) for o in plan.scalars)


def _number(role: str) -> int:
    """The place of a scalar among those given at launch: the scale, then score_mod's."""
    if not role.startswith("score_mod_scalar_"):
        return 0
    return 1 + int(role.removeprefix("score_mod_scalar_"))


def _maker(operand: Operand, roles: tuple[str, ...], where: torch.device) -> _Maker:
    dtype = TORCH_DTYPES[operand.dtype]
    if operand.derived is None:
        value = operand.constant or 0
        steps = zip(operand.shape, operand.strides, strict=True)
        shape = [1 if stride == 0 else n for n, stride in steps]  # one number serves such an axis
        filled = float(value) if dtype.is_floating_point else int(value)
        return lambda _: torch.full(shape, filled, dtype=dtype, device=where)
    rule, place = operand.derived, roles.index(operand.derived.source)
    count = operand.shape[0]
    return lambda tensors: _derived(tensors[place], rule, count, dtype)


def _derived(source: Tensor, rule: Derived, count: int, dtype: torch.dtype) -> Tensor:
    """See ``sdpa_core.cudnn.graph.Derived``."""
    if rule.rule is Rule.OFFSETS:
        offsets = source.to(dtype) * rule.multiplier
        missing = count - offsets.shape[0]
        return torch.cat([offsets, offsets[-1:].expand(missing)]) if missing else offsets
    lengths = source[1:] - source[:-1] if rule.rule is Rule.DIFFERENCES else source
    lengths = lengths.to(dtype)
    missing = count - lengths.shape[0]
    if missing:
        return torch.nn.functional.pad(lengths, (0, missing))
    return lengths.clone() if misaligned(lengths) or not lengths.is_contiguous() else lengths
