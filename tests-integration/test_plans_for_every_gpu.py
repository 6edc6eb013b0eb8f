"""cuDNN plans every graph of the library for every architecture, here, without a GPU.

What our rules accept, cuDNN must build and the native executor must load; what they refuse, cuDNN
must refuse too (``support_matrix`` asks that of many more). Nothing is executed.
"""

from __future__ import annotations

import pytest
from support_matrix.problems import PROBLEMS

import sdpa_ffi
from sdpa_core import Alignment, AttentionProblem, Band, DeviceSpec, Direction, DType, TensorSpec
from sdpa_core.cudnn import builder, session
from sdpa_core.cudnn.probe import plan_or_refusal
from sdpa_core.cudnn.rules import reasons
from sdpa_core.layout import dense_in_order

DEVICES = ("a100", "h200", "b200", "rtx5090")
BSHD = (0, 2, 1, 3)
CAUSAL = Band.causal()
BOTTOM_RIGHT = Band.causal(Alignment.BOTTOM_RIGHT)


def problem(
    sq: int = 256,
    skv: int = 256,
    heads: int = 4,
    heads_kv: int = 4,
    d: int = 128,
    dv: int = 128,
    dtype: DType = DType.BFLOAT16,
    band: Band | None = None,
    bshd: bool = False,
    deterministic: bool = False,
    batch: int = 2,
) -> AttentionProblem:
    def spec(*shape: int) -> TensorSpec:
        dense = TensorSpec.dense(shape, dtype)
        return TensorSpec(shape, dense_in_order(shape, BSHD), dtype) if bshd else dense

    return AttentionProblem.of(
        spec(batch, heads, sq, d),
        spec(batch, heads_kv, skv, d),
        spec(batch, heads_kv, skv, dv),
        band=band,
        training=True,
        deterministic=deterministic,
    )


#: A graph of each kind that the builders make.
ACCEPTED = {
    "plain": problem(),
    "fp16_bshd_grouped_causal": problem(
        dtype=DType.FLOAT16, bshd=True, heads_kv=2, band=CAUSAL, batch=1
    ),
    "causal_d64": problem(d=64, dv=64, band=CAUSAL),
    "bottom_right_more_keys": problem(sq=96, band=BOTTOM_RIGHT),
    "bottom_right_more_queries": problem(sq=300, skv=200, d=64, dv=64, band=BOTTOM_RIGHT),
    "half_empty_key_tile": problem(sq=100, skv=192),
    "one_head_dim_multiple_of_8": problem(d=72, dv=104, heads_kv=1),
    "decode": problem(sq=1, heads_kv=1, band=BOTTOM_RIGHT),
    "deterministic": problem(deterministic=True),
    "deterministic_decode": problem(sq=1, skv=2048, heads=32, heads_kv=8, deterministic=True),
    "head_dim_192_128": problem(d=192, dv=128, band=CAUSAL),
    "head_dim_256": problem(d=256, dv=256),
    "window": problem(band=Band(64, 0)),
}


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("device", DEVICES)
def test_rules_and_cudnn_agree(device: str, name: str, direction: Direction) -> None:
    asked = ACCEPTED[name]
    spec = DeviceSpec.named(device, cudnn_version=session.cudnn_version())
    refused = reasons(asked, spec, direction)
    if refused:
        plan = plan_or_refusal(asked, spec, direction)
        assert isinstance(plan, str), f"cuDNN builds what we refuse: {refused[0]}"
        return
    assert_loaded(asked, spec, direction)


def assert_loaded(asked: AttentionProblem, spec: DeviceSpec, direction: Direction) -> None:
    """The executor makes of the plan what cuDNN made, and wants the operands that are described."""
    plan = plan_or_refusal(asked, spec, direction)
    assert not isinstance(plan, str), f"cuDNN refuses what we accept: {plan}"
    assert (plan.sm, plan.cudnn_version) == (spec.sm, spec.cudnn_version)
    found = sdpa_ffi.verify(plan.container, spec.properties)
    assert found.workspace_bytes == plan.workspace_bytes
    uids = [operand.uid for operand in plan.graph.operands if operand.constant is None]
    constants = [operand.uid for operand in plan.graph.operands if operand.constant is not None]
    assert set(uids) <= set(found.uids) <= {*uids, *constants}


#: One problem for each kind of operand.
OPERANDS = (
    "bias [1, h, s, t] with gradient",
    "bias, lengths",
    "sink, lengths",
    "off by one",
    "dropout, causal",
    "packed with gaps",
    "packed queries, dense keys",
    "dense queries, packed keys",
    "deterministic, packed",
    "pages, packed queries, log-sum-exp",
    "one query, sink, lengths",
    "slopes [1, h], sink, causal",
    "score_mod with a tensor",
    "softcap, causal",
)


@pytest.mark.parametrize("name", OPERANDS)
def test_the_executor_takes_every_kind_of_operand(name: str) -> None:
    spec = DeviceSpec.named("h200", cudnn_version=session.cudnn_version())
    asked = PROBLEMS[name]
    for direction in Direction if asked.training else (Direction.FORWARD,):
        assert reasons(asked, spec, direction) == ()
        assert_loaded(asked, spec, direction)


@pytest.mark.parametrize(
    ("wrong", "direction"),
    [
        (problem(d=12), Direction.FORWARD),
        (problem(dv=4), Direction.BACKWARD),
        (problem(sq=1, skv=1), Direction.BACKWARD),
    ],
    ids=["head_dim_12", "value_dim_4", "one_token"],
)
@pytest.mark.parametrize("device", DEVICES)
def test_what_the_rules_refuse_everywhere_cudnn_refuses_too(
    device: str, wrong: AttentionProblem, direction: Direction
) -> None:
    spec = DeviceSpec.named(device, cudnn_version=session.cudnn_version())
    assert reasons(wrong, spec, direction)
    with pytest.raises(session.GraphRefusedError):
        session.build(builder.describe(wrong, spec, direction), spec)


def test_both_directions_of_a_problem_are_two_plans() -> None:
    spec = DeviceSpec.named("h200", cudnn_version=session.cudnn_version())
    plans = [plan_or_refusal(problem(), spec, direction) for direction in Direction]
    assert all(not isinstance(plan, str) for plan in plans)
    assert plans[0].fingerprint != plans[1].fingerprint  # type: ignore[union-attr]
