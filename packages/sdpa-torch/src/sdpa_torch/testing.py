"""The adapter under test: its conformance subject, and its cuDNN path without cuDNN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from sdpa_core import (
    AttentionProblem,
    DeviceSpec,
    Direction,
    DType,
    Plan,
    TensorSpec,
    Unsupported,
)
from sdpa_core.cudnn.graph import OperandKind
from sdpa_core.cudnn.rules import reasons
from sdpa_core.mask import Alignment, Band
from sdpa_core.tensor import VECTOR_BYTES
from sdpa_core.testing import Case, Inputs, Placed, Result, place, problem_of
from sdpa_core.testing.fake_cudnn import FAKE_BACKENDS, FakeCudnn, OperandView

from . import attend
from .convert import DTYPES, TORCH_DTYPES, is_regular
from .cudnn import Execute
from .dispatch import Environment
from .functional import scaled_dot_product_attention


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
            views = {uid: _view(tensor) for uid, tensor in tensors.items()}
            given = {o.uid: value for o, value in zip(plan.scalars, scalars, strict=True)}
            for uid, array in self._fake.execute(plan, views, given).items():
                tensors[uid].copy_(torch.from_numpy(array))

        return execute

    def stream(self, where: torch.device) -> int:
        return 0


def _view(tensor: Tensor) -> OperandView:
    address: int = tensor.data_ptr()
    return OperandView(
        array=tensor.detach().double().numpy(),
        strides=tensor.stride(),
        dtype=DTYPES[tensor.dtype],
        alignment=address & -address or None,
    )


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


@dataclass(frozen=True)
class TorchSubject:
    """``scaled_dot_product_attention`` on a device, for the conformance suite.

    Attributes:
        name: for reports.
        device: where the operands live.
        backend: the ``backend`` argument.
        spec: the device that decides what is refused when ``backend`` is ``"cudnn"``.
    """

    name: str
    device: str = "cpu"
    backend: str | None = None
    spec: DeviceSpec | None = None

    def run(
        self,
        case: Case,
        inputs: Inputs,
        *,
        training: bool,
        return_lse: bool,
        deterministic: bool = False,
    ) -> Result:
        operands = [self._tensor(placed) for placed in place(case, inputs)]
        if training:
            operands = [tensor.requires_grad_() for tensor in operands]
        given = scaled_dot_product_attention(
            *operands,
            is_causal=not case.band.is_full,
            causal_alignment=_alignment(case.band),
            scale=case.scale,
            enable_gqa=True,
            return_lse=return_lse,
            deterministic=deterministic,
            backend=self.backend,
        )
        output, lse = given if return_lse else (given, None)
        tensors = {"output": output, "lse": lse}
        if training:
            incoming = torch.from_numpy(inputs.grad_output).to(self.device, output.dtype)
            grads = torch.autograd.grad(output, operands, incoming)
            tensors.update(zip(("grad_query", "grad_key", "grad_value"), grads, strict=True))
        found = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        return Result(
            **{name: tensor.detach().double().cpu().numpy() for name, tensor in found.items()},
            dtypes={name: str(DTYPES[tensor.dtype]) for name, tensor in found.items()},
        )

    def refusal(
        self, case: Case, *, training: bool, deterministic: bool = False
    ) -> tuple[Unsupported, ...]:
        problem = problem_of(case, training=training, deterministic=deterministic)
        if self.backend != "cudnn" or self.spec is None or problem.is_empty:
            return ()
        copied = AttentionProblem.of(
            *(_readable(spec) for spec in (problem.query, problem.key, problem.value)),
            band=problem.band,
            training=training,
            deterministic=deterministic,
        )
        forward = reasons(copied, self.spec, Direction.FORWARD)
        return forward + (reasons(copied, self.spec, Direction.BACKWARD) if training else ())

    def _tensor(self, placed: Placed) -> Tensor:
        buffer = torch.from_numpy(placed.buffer.copy())
        if placed.dtype is DType.BFLOAT16:
            buffer = buffer.view(torch.bfloat16)
        buffer = buffer.to(self.device, TORCH_DTYPES[placed.dtype])
        return buffer.as_strided(placed.shape, placed.strides, placed.offset).detach()


def _readable(spec: TensorSpec) -> TensorSpec:
    """The operand as cuDNN gets it: the adapter copies what it cannot read in place."""
    regular = is_regular(spec.shape, spec.strides, spec.dtype.itemsize)
    return (
        spec if regular and spec.alignment == VECTOR_BYTES else spec.dense(spec.shape, spec.dtype)
    )


def _alignment(band: Band) -> str:
    if band not in (Band(), Band.causal(), Band.causal(Alignment.BOTTOM_RIGHT)):
        raise ValueError(f"{band} cannot be asked for yet")
    return str(band.alignment)
