"""Rules about packed and paged sequences."""

from __future__ import annotations

from ...device import DeviceSpec
from ...paged import INFERENCE_ONLY
from ...problem import AttentionProblem, Direction
from ...ragged import token_bucket
from ...reasons import Unsupported
from .rule import Reasons, needs


def packed(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Compute capability 8.x: TransformerEngine issue 3092; 12.x: its selection of backends."""
    if problem.is_packed and device.sm // 10 in (8, 12):
        yield from needs(device, 91801, f"packed sequences on compute capability {device.sm / 10}")


def packed_queries(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Beside dense keys the backward kernel does not compile (cuDNN 9.19 and 9.28)."""
    family = device.sm // 10
    alone = problem.packed_q is not None and problem.packed_kv is None
    if alone and direction is Direction.BACKWARD and family in (8, 12):
        yield Unsupported(
            "cu_seqlens_q",
            "given",
            f"packed keys too in training on compute capability {family}.x",
            "pack the keys",
        )


def packed_keys(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Next to a dense query cuDNN counts the keys' offsets in int32 (``offsets``)."""
    if problem.packed_kv is None or problem.packed_q is not None:
        return
    rows = token_bucket(problem.packed_kv.tokens)
    elements = rows * max(problem.key.strides[2], problem.value.strides[2])
    if elements >= 2**31:
        yield Unsupported(
            "cu_seqlens_kv",
            f"for {problem.packed_kv.tokens} tokens beside a dense query",
            "fewer than 2**31 elements of key and of value",
            "pack the query too",
        )


def paged(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """``sdpa_backward`` has no argument for pages, and a function excludes the mask they need."""
    if problem.paged is None:
        return
    if direction is Direction.BACKWARD:
        yield INFERENCE_ONLY
    if problem.is_flex:
        yield Unsupported(
            "page_table",
            "given",
            "contiguous keys with softcap, score_mod or ALiBi slopes",
            "gather the pages into [B, H, S, D] and call the dense function with seq_lens_kv",
        )
