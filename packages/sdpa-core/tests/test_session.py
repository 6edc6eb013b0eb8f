"""The choice among the plans that cuDNN offers, with a stand-in for its graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sdpa_core.cudnn.refusal import GraphRefusedError
from sdpa_core.cudnn.session import _build_first

CUDNN: Any = SimpleNamespace(cudnnGraphNotSupportedError=LookupError)


class Graph:
    """Offers plans of these names and bytes of workspace; those without do not build."""

    def __init__(self, *plans: tuple[str, int | None], engine_id: int = 8) -> None:
        self._offered, self._index = plans, -1
        self.plans = [SimpleNamespace(engine_id=engine_id) for _ in plans]

    def get_execution_plan_count(self) -> int:
        return len(self._offered)

    def build_plan_at_index(self, index: int) -> None:
        self._index = index
        if self._offered[index][1] is None:
            raise LookupError("not this one")

    def get_plan_name_at_index(self, index: int) -> str:
        return self._offered[index][0]

    def get_workspace_size(self) -> int | None:
        return self._offered[self._index][1]


def test_the_first_that_builds() -> None:
    graph = Graph(("eng8_k24=7", None), ("eng8_k24=35", 4096), ("eng8_k24=3", 0))
    assert _build_first(graph, CUDNN, whole_keys=False) == 1


@pytest.mark.parametrize(
    ("split", "whole"),
    [
        (("eng8_k24=35", 0), ("eng8_k24=6", 0)),
        (("eng1_k24=35", 270464), ("eng1_k24=3", 256)),
        (("eng8_k24=2_k27=0_k38=1_k40=0_k41=2", 0), ("eng8_k24=1_k27=0_k38=0_k40=3_k41=1", 0)),
        (("eng10_k24=1_k27=0_k38=0_k40=3_k41=2", 0), ("eng8_k24=1_k27=0_k38=0_k40=2_k41=1", 0)),
        (("eng77_unheard_of", 2048), ("eng77_too", 1024)),
    ],
)
def test_plans_that_split_keys_are_left_out(split: tuple[str, int], whole: tuple[str, int]) -> None:
    assert _build_first(Graph(split, whole), CUDNN, whole_keys=True) == 1
    assert _build_first(Graph(whole, split), CUDNN, whole_keys=True) == 0
    with pytest.raises(GraphRefusedError, match="every plan splits the keys"):
        _build_first(Graph(split), CUDNN, whole_keys=True)


def test_no_plan_and_the_reason() -> None:
    for graph in (Graph(), Graph(("a Python engine", 0), engine_id=10_000)):
        with pytest.raises(GraphRefusedError, match="offers no plan"):
            _build_first(graph, CUDNN, whole_keys=False)
    with pytest.raises(GraphRefusedError, match="not this one"):
        _build_first(Graph(("eng8", None)), CUDNN, whole_keys=False)
