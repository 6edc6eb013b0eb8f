"""The adapter's cuDNN path without cuDNN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from sdpa_core import AttentionProblem, DeviceSpec, Direction, Plan
from sdpa_core.cudnn.graph import Operand, OperandKind
from sdpa_core.testing.fake_cudnn import FAKE_BACKENDS, FakeCudnn, OperandView

from .. import attend
from ..convert import DTYPES
from ..cudnn import Execute
from ..dispatch import Environment


class FakeRuntime:
    """``cudnn.Runtime`` on the fake: every launch is checked against its described graph."""

    def __init__(self, fake: FakeCudnn) -> None:
        self._fake = fake

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan:
        return self._fake.plan(problem.for_direction(direction), spec, direction)

    def load(self, plan: Plan, where: torch.device) -> Execute:
        bound = [o for o in plan.graph.operands if o.kind is not OperandKind.HOST_SCALAR]

        def execute(
            operands: tuple[Tensor, ...],
            scalars: tuple[float, ...],
            workspace: Tensor | None,
            stream: int,
        ) -> None:
            tensors = {o.uid: tensor for o, tensor in zip(bound, operands, strict=True)}
            views = {o.uid: _view(o, tensors[o.uid]) for o in bound}
            given = {o.uid: value for o, value in zip(plan.scalars, scalars, strict=True)}
            for uid, array in self._fake.execute(plan, views, given).items():
                target = tensors[uid]
                target.copy_(torch.from_numpy(array).reshape(target.shape))

        return execute

    def stream(self, where: torch.device) -> int:
        return 0


def _view(operand: Operand, tensor: Tensor) -> OperandView:
    """What the executor sees: an address. Axes of one element have no place in memory."""
    address: int = tensor.data_ptr()
    given = tensor.detach()
    if operand.ragged is None and given.shape != operand.shape:
        given = _with_axes(given, operand)
    whole = not given.is_floating_point()
    return OperandView(
        array=given.numpy() if whole else given.double().numpy(),
        strides=given.stride(),
        dtype=DTYPES[tensor.dtype],
        alignment=address & -address or None,
    )


def _with_axes(tensor: Tensor, operand: Operand) -> Tensor:
    """The memory in the described shape: with axes of length 1, and one number that serves an axis.

    As it is if that does not fit.
    """
    shape = operand.shape
    if tensor.dim() == len(shape):
        fits = all(ours in (1, n) for ours, n in zip(tensor.shape, shape, strict=True))
        return tensor.expand(shape) if fits else tensor
    steps = zip(shape, operand.strides, strict=True)
    own = [1 if stride == 0 else n for n, stride in steps]
    squeezed = tensor.squeeze()
    if tuple(squeezed.shape) != tuple(n for n in own if n != 1):
        return tensor
    strides = iter(squeezed.stride())
    return squeezed.as_strided(own, [1 if n == 1 else next(strides) for n in own]).expand(shape)


@contextmanager
def fake_cudnn(device: str = "h200", cudnn_version: int = 91900) -> Iterator[FakeCudnn]:
    """Inside, tensors on the CPU take the whole cuDNN path as if they were on ``device``.

    The numbers come from the float64 oracle; operands that differ from the described graph in
    uid, shape, strides, dtype or alignment raise ``AssertionError``.
    """
    fake = FakeCudnn()
    spec = DeviceSpec.named(device, cudnn_version=cudnn_version)
    before = attend.environment
    attend.environment = Environment(lambda where: spec, lambda: FAKE_BACKENDS, FakeRuntime(fake))
    try:
        yield fake
    finally:
        attend.environment = before
