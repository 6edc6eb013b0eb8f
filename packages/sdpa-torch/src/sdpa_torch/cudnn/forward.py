"""The forward pass on cuDNN."""

from __future__ import annotations

import torch
from torch import Tensor

from sdpa_core import Direction
from sdpa_core.problem import Softmax

from .. import sequences
from ..features import Features
from .operands import Launch
from .repairs import fixes_empty_sequences, rows_without_keys
from .setting import Setting
from .slack import query_rows, with_clear_slack
from .strides import strides_of

_MINUS_INF = float("-inf")


class Forward:
    """``problem.inputs`` -> ``problem.results``; see ``dispatch.Forward``."""

    def __init__(self, setting: Setting) -> None:
        problem, features = setting.problem, setting.features
        plan = setting.planned(Direction.FORWARD)
        self._launch = Launch(plan, problem, problem.inputs, setting.where, setting.runtime)
        self._features = features
        self._clears = features.has_lengths and not features.slack_is_finite
        self._strides = strides_of(problem)
        self._places = [self._launch.roles.index(role) for role in problem.results]
        self._fixes = fixes_empty_sequences(setting, Direction.FORWARD)
        dense_stats = problem.needs_stats and plan.graph.operand("stats").ragged is None
        self._packs_stats = features.max_q is not None and dense_stats
        # Rows of no sequence: unwritten if packed, and the sink's where there is one.
        self._hides = problem.return_lse and (
            features.max_q is not None or features.has("seq_lens_q")
        )
        self._finishes = (
            self._fixes or self._packs_stats or self._hides or features.return_max_logit
        )

    def __call__(
        self, tensors: tuple[Tensor, ...], scalars: tuple[float, ...]
    ) -> tuple[Tensor, ...]:
        if self._clears:
            tensors = with_clear_slack(tensors, self._features, self._strides)
        results = self._launch(tensors, scalars)
        if self._finishes:
            results = self._finished(results, tensors)
        return tuple(results)

    def _finished(self, results: list[Tensor], tensors: tuple[Tensor, ...]) -> list[Tensor]:
        """Results after what cuDNN leaves to us, in the problem's order."""
        features = self._features
        named = dict(zip(features.roles, tensors, strict=True))
        output, *others = (results[place] for place in self._places)
        rows = query_rows(features)
        max_logit = others.pop() if features.return_max_logit else None
        stats = others[0] if others else None
        if self._packs_stats and stats is not None:
            stats = sequences.packed(stats, rows.places(named, output.shape[0]), _MINUS_INF)
        if self._fixes:
            empty = rows_without_keys(named, features, output)
            output = _stored_like(output.masked_fill(empty, 0.0), output)
            if stats is not None:
                valid = rows.valid(named, stats)
                here = empty if valid is None else empty & valid
                stats = _of_no_key(features, named, stats).where(here, stats)
        if self._hides and stats is not None:
            valid = rows.valid(named, stats)
            stats = stats if valid is None else stats.where(valid, _MINUS_INF)
        finished = [output] if stats is None else [output, stats]
        if max_logit is not None:
            finished.append(self._largest(max_logit, named, output))
        return finished

    def _largest(self, raw: Tensor, named: dict[str, Tensor], output: Tensor) -> Tensor:
        """The largest logit of each head from that of each row; what no sequence has is garbage."""
        rows = query_rows(self._features)
        if self._features.max_q is not None and raw.dim() == 4:
            raw = sequences.packed(raw, rows.places(named, output.shape[0]), _MINUS_INF)
        valid = rows.valid(named, raw)
        if valid is not None:
            raw = raw.where(valid, _MINUS_INF)
        if self._fixes:
            raw = raw.masked_fill(rows_without_keys(named, self._features, raw), _MINUS_INF)
        return raw.amax([axis for axis in range(raw.dim()) if axis != 1])


def _of_no_key(features: Features, named: dict[str, Tensor], stats: Tensor) -> Tensor:
    """The log-sum-exp of rows that see no key: that of the sink, if there is one."""
    sink = named.get("sink")
    if sink is None:
        alone = 0.0 if features.softmax is Softmax.OFF_BY_ONE else _MINUS_INF
        return torch.full((), alone, dtype=stats.dtype, device=stats.device)
    shape = [1] * stats.dim()
    shape[1] = -1
    return sink.to(stats.dtype).reshape(shape)


def _stored_like(result: Tensor, like: Tensor) -> Tensor:
    return result if result.stride() == like.stride() else like.copy_(result)
