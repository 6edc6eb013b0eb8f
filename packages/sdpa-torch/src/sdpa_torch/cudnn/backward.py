"""The backward pass on cuDNN."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from sdpa_core import Direction, TensorSpec
from sdpa_core.cudnn.dimensions import pads_query
from sdpa_core.layout import Strides, canonical_strides

from .. import sequences
from ..convert import copied, is_regular, misaligned
from .operands import Launch
from .repairs import fixes_empty_sequences, rows_without_keys, sequences_without_keys
from .setting import Setting
from .slack import query_rows, with_clear_slack
from .strides import SAVED, strides_of


class Backward:
    """``problem.inputs``, output, stats and its gradient -> ``problem.gradients``.

    There is one plan for each layout in which the gradient of a dense output arrives.
    """

    def __init__(self, setting: Setting) -> None:
        problem, features = setting.problem, setting.features
        plan = setting.planned(Direction.BACKWARD)
        self._setting = setting
        self._features = features
        # Packed operands are read dense, whatever the forward pass read.
        self._strides = strides_of(problem.for_direction(Direction.BACKWARD))
        self._roles = (*problem.inputs, *SAVED, "grad_output")
        self._usual = Launch(plan, problem, self._roles, setting.where, setting.runtime)
        self._places = [self._usual.roles.index(role) for role in problem.gradients]
        self._clears = features.has_lengths and not features.slack_is_finite
        self._pads = pads_query(problem)
        self._fixes = fixes_empty_sequences(setting, Direction.BACKWARD)
        self._unpacks_stats = (
            features.max_q is not None and plan.graph.operand("stats").ragged is None
        )

        @lru_cache(maxsize=16)
        def launch_for(strides: tuple[int, ...]) -> Launch | None:
            output = problem.output
            incoming = TensorSpec(output.shape, strides, output.dtype)
            wanted = replace(problem, grad_output=incoming)
            found = setting.runtime.plan(wanted, setting.spec, Direction.BACKWARD)
            # Not worth more workspace than policy has accepted for the usual layout.
            if isinstance(found, str) or found.workspace_bytes > plan.workspace_bytes:
                return None
            return Launch(found, wanted, self._roles, setting.where, setting.runtime)

        self._launch_for = launch_for

    def __call__(
        self, tensors: tuple[Tensor, ...], scalars: tuple[float, ...]
    ) -> tuple[Tensor, ...]:
        if self._clears:
            operands, launch = self._cleared(tensors), self._usual
        else:
            grad_output, launch = self._incoming(tensors[-1])
            operands = (*self._as_planned(tensors[:-1]), grad_output)
        named = dict(zip(self._roles, operands, strict=True))
        if self._unpacks_stats:
            side = query_rows(self._features).of(named, named["stats"].shape[0])
            stats = sequences.padded(named["stats"], side).contiguous()
            operands = tuple((named | {"stats": stats}).values())
        results = launch(operands, scalars)
        if self._fixes:
            results = self._repaired(results, named)
        grads = [results[place] for place in self._places]
        return tuple(grads if len(grads) == 3 else self._with_shared(grads, named))

    def _with_shared(self, grads: list[Tensor], named: dict[str, Tensor]) -> list[Tensor]:
        """Gradients of bias and sink in the shape and type of what they belong to.

        cuDNN gives the bias's for every row, and in the query's type.
        """
        for place, role in enumerate(self._setting.problem.gradients[3:], start=3):
            operand = named[role.removeprefix("grad_")]
            grad = grads[place]
            if operand.dim() == 4 and operand.shape[2] != grad.shape[2]:
                grad = grad.sum(2, keepdim=True, dtype=torch.float32)
            grads[place] = grad.reshape(operand.shape).to(operand.dtype)
        return grads

    def _cleared(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The operands without what lies in rows of no sequence.

        The query's rows count too: they meet probabilities that are 0 in the key's gradient.
        """
        last = len(tensors) - 1
        strides = (*self._strides, self._strides[-2])
        cleared = with_clear_slack(tensors, self._features, strides, (0, last - 2, last))
        return (*self._as_planned(cleared[:-1]), _as(cleared[-1], strides[-1]))

    def _repaired(self, results: list[Tensor], named: dict[str, Tensor]) -> list[Tensor]:
        """Gradients of sequences without a key are 0."""
        features, roles = self._features, self._usual.roles
        masks = {"grad_query": rows_without_keys(named, features, named["query"])}
        keys = sequences_without_keys(named, features)
        if keys is not None:
            masks |= {"grad_key": keys, "grad_value": keys}
        return [
            result.masked_fill(masks[role], 0.0) if role in masks else result
            for role, result in zip(roles, results, strict=True)
        ]

    def _as_planned(self, saved: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The saved tensors with the strides of the forward pass.

        ``torch.autograd.graph`` hooks (offloading to the host, say) may return others.
        """
        return tuple(
            [_as(tensor, strides) for tensor, strides in zip(saved, self._strides, strict=True)]
        )

    def _incoming(self, grad_output: Tensor) -> tuple[Tensor, Launch]:
        """The gradient and the plan that reads it; a copy stored like the output if none does.

        ``out.sum().backward()`` sends one element expanded over all axes (pytorch issue 134001).
        """
        usual = self._strides[-2]
        if self._pads or _lies(grad_output, usual):
            return grad_output, self._usual
        shape, strides = grad_output.shape, grad_output.stride()
        dense = 0 not in strides and is_regular(shape, strides, grad_output.element_size())
        if dense and self._features.max_q is None and not misaligned(grad_output):
            launch = self._launch_for(strides)
            if launch is not None:
                return grad_output, launch
        return copied(grad_output, usual), self._usual


def _as(tensor: Tensor, strides: Strides) -> Tensor:
    return tensor if _lies(tensor, strides) else copied(tensor, strides)


def _lies(tensor: Tensor, strides: Strides) -> bool:
    """Whether a tensor lies in memory as planned; strides of length-1 axes do not matter."""
    given = tensor.stride()
    same = given == strides or canonical_strides(tensor.shape, given) == canonical_strides(
        tensor.shape, strides
    )
    return same and not misaligned(tensor)
