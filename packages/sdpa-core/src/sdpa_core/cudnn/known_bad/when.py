"""Which problems meet a fault: what ``KnownBad.applies`` asks, one function for each row."""

from __future__ import annotations

from ...device import DeviceSpec
from ...problem import AttentionProblem, Direction


def half_empty_key_tile(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    backward = direction is Direction.BACKWARD
    unmasked = p.band.is_full and not p.has_lengths and not p.is_flex
    return backward and unmasked and p.tokens_kv % 128 == 64


def partial_key_tile(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    unmasked = not p.has_lengths and not p.is_flex
    return direction is Direction.BACKWARD and unmasked and p.tokens_kv % 128 != 0


def window(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return p.band.left is not None and p.band.right != 0 and p.tokens_kv > 1024


def merged_statistics(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    """Keys are split where one row is declared.

    Of two rows (a sink beside a single query, packed single queries) cuDNN 9.19 and 9.28 plan
    without split keys, on compute capability 8.0, 9.0, 10.0 and 12.0.
    """
    forward = direction is Direction.FORWARD
    return forward and p.deterministic and p.is_decode and p.needs_stats


def keyless_sequences(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return p.seq_lens_kv or p.packed_kv is not None


def packed_on_hopper(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.is_packed and device.sm // 10 == 9


def packed_sink_grad(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.is_packed and p.sink_grad


def packed_function(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return p.is_packed and p.is_flex


def dropped_sink_grad(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.sink_grad and p.dropout_p > 0


def causal_with_more_keys(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return device.sm == 103 and p.band.right is not None and p.tokens_kv > p.tokens_q


def pages_on_ada(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return device.sm == 89 and p.paged is not None


def deterministic_sink_grad(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.deterministic and p.sink_grad


def bias_grad_of_function(p: AttentionProblem, device: DeviceSpec, direction: Direction) -> bool:
    return direction is Direction.BACKWARD and p.bias_grad and p.is_flex
