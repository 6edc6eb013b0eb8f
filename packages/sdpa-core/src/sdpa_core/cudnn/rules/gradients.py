"""Rules about the backward pass."""

from __future__ import annotations

from ...device import DeviceSpec
from ...problem import AttentionProblem, Direction
from ...reasons import Unsupported
from .rule import Reasons, needs


def deterministic(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Head dim 256 on compute capability 10.x has no other backward pass than this one."""
    if direction is Direction.FORWARD:
        return
    family = device.sm // 10
    only_so = family == 10 and problem.query.shape[-1] == problem.value.shape[-1] == 256
    if not (problem.deterministic or only_so):
        return
    if family in (8, 12) and problem.is_packed:
        yield Unsupported(
            "deterministic",
            True,
            f"False with packed sequences on compute capability {family}.x",
            "deterministic=False, or pad the sequences",
        )
    if family == 10:
        yield from needs(device, 91800, "deterministic gradients on compute capability 10.x")
        if problem.bias is not None or problem.is_flex:
            # The kernels do not compile: cuDNN 9.19, 9.21 and 9.22, but 9.23 (built without a GPU).
            what = "deterministic gradients with a bias or a function of the logits"
            yield from needs(device, 92300, f"{what} on compute capability 10.x")
        why = "head_dim 256" if only_so else "deterministic gradients"
        yield from _alone(problem, f"with {why} on compute capability 10.x")


def _alone(problem: AttentionProblem, where: str) -> Reasons:
    others = {
        "bias.requires_grad": (problem.bias_grad, "True", "False"),
        "dropout_p": (problem.dropout_p > 0, str(problem.dropout_p), "0"),
        "alibi": (problem.alibi, "True", "False"),
    }
    for name, (given, got, need) in others.items():
        if given:
            yield Unsupported(name, got, f"{need} {where}")


def bias_gradient(problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Reasons:
    """Of packed sequences only Hopper has it, and compute capability 10.x none with dropout.

    cuDNN 9.19 and 9.28: no engine. TransformerEngine refuses both on compute capability 10.x.
    """
    if direction is Direction.FORWARD or not problem.bias_grad:
        return
    family = device.sm // 10
    if problem.is_packed and family != 9:
        yield Unsupported(
            "bias.requires_grad",
            True,
            f"False with packed sequences on compute capability {family}.x",
        )
    if problem.dropout_p > 0 and family == 10 and not problem.deterministic:
        yield Unsupported(
            "bias.requires_grad", True, "False with dropout on compute capability 10.x"
        )
