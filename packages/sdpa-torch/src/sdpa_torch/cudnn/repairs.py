"""What a released cuDNN gets wrong and we put right, as ``sdpa_core.cudnn.known_bad`` says."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from sdpa_core import Direction
from sdpa_core.cudnn.known_bad import Remedy, faults

from ..features import Features
from .setting import Setting
from .slack import key_rows, query_rows


def fixes_empty_sequences(setting: Setting, direction: Direction) -> bool:
    """Whether results of sequences without a key must be overwritten."""
    if not setting.problem.has_lengths:
        return False
    found = faults(setting.problem, setting.spec, direction)
    return any(row.remedy is Remedy.FIX_EMPTY for row in found)


def rows_without_keys(named: Mapping[str, Tensor], features: Features, like: Tensor) -> Tensor:
    """Which rows of a tensor of the query's side belong to sequences without a key."""
    return query_rows(features).of_sequences(_empty(named, features), named, like)


def sequences_without_keys(named: Mapping[str, Tensor], features: Features) -> Tensor | None:
    """The same for a dense tensor of the keys' side; None: packed sequences have no such rows."""
    if features.max_kv is not None:
        return None
    return _empty(named, features).reshape(-1, 1, 1, 1)


def _empty(named: Mapping[str, Tensor], features: Features) -> Tensor:
    lengths = key_rows(features).lengths(named)
    if lengths is None:  # of dense keys, all full
        ours = query_rows(features).lengths(named)
        assert ours is not None
        return ours < 0
    return lengths == 0
