from __future__ import annotations

from collections.abc import Callable

import pytest

from sdpa_core import AttentionProblem, Band, DType, TensorSpec

MakeProblem = Callable[..., AttentionProblem]


@pytest.fixture
def make_problem() -> MakeProblem:
    """A problem of bfloat16 [2, 4, 128, 64] operands, with what the test says instead."""

    def make(
        batch: int = 2,
        heads: int = 4,
        heads_kv: int = 4,
        sq: int = 128,
        skv: int = 128,
        d: int = 64,
        dv: int = 64,
        dtype: DType = DType.BFLOAT16,
        band: Band | None = None,
        training: bool = True,
        **flags: bool,
    ) -> AttentionProblem:
        return AttentionProblem.of(
            TensorSpec.dense((batch, heads, sq, d), dtype),
            TensorSpec.dense((batch, heads_kv, skv, d), dtype),
            TensorSpec.dense((batch, heads_kv, skv, dv), dtype),
            band=band,
            training=training,
            **flags,
        )

    return make
