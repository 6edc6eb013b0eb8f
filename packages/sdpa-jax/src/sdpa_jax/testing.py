"""The adapter under test: its conformance subject, and its cuDNN path without cuDNN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from sdpa_core import (
    AttentionProblem,
    Band,
    DeviceSpec,
    Direction,
    DType,
    Plan,
    Unsupported,
)
from sdpa_core.cudnn.graph import Operand
from sdpa_core.cudnn.rules import reasons
from sdpa_core.mask import Alignment
from sdpa_core.testing import Case, Inputs, Result, round_to
from sdpa_core.testing.fake_cudnn import FAKE_BACKENDS, FakeCudnn, OperandView

from . import convert
from .cudnn import memory_axes
from .dispatch import Environment, replaced
from .functional import dot_product_attention


class FakeRuntime:
    """``cudnn.Runtime`` on the fake: every launch is checked against its described graph."""

    def __init__(self, fake: FakeCudnn) -> None:
        self._fake = fake

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan:
        return self._fake.plan(problem.for_direction(direction), spec, direction)

    def execute(
        self,
        plan: Plan,
        inputs: Sequence[Array],
        results: Sequence[jax.ShapeDtypeStruct],
        scale: float,
    ) -> list[Array]:
        def on_host(*arrays: Array) -> list[NDArray[Any]]:
            given = [np.asarray(array) for array in arrays]
            given += [np.zeros(result.shape, result.dtype) for result in results]
            operands = (*plan.inputs, *plan.outputs)
            views = {o.uid: _view(o, array) for o, array in zip(operands, given, strict=True)}
            scalars = {o.uid: scale for o in plan.scalars}
            found = self._fake.execute(plan, views, scalars)
            return [_stored(operand, found[operand.uid]) for operand in plan.outputs]

        return list(jax.pure_callback(on_host, list(results), *inputs))


def _view(operand: Operand, array: NDArray[Any]) -> OperandView:
    """A dense array as the graph sees it."""
    dense = np.ascontiguousarray(array).transpose(memory_axes(operand))
    return OperandView(
        array=dense if dense.dtype.kind == "i" else dense.astype(np.float64),
        strides=tuple(stride // array.itemsize for stride in dense.strides),
        dtype=DType(array.dtype.name),
    )


def _stored(operand: Operand, array: NDArray[np.float64]) -> NDArray[Any]:
    rounded = round_to(array, operand.dtype).transpose(memory_axes(operand))
    return np.ascontiguousarray(rounded.astype(jnp.dtype(operand.dtype.value)))


@contextmanager
def fake_cudnn(device: str = "h200", cudnn_version: int = 91900) -> Iterator[FakeCudnn]:
    """Inside, arrays on the CPU take the whole cuDNN path as if they were on ``device``.

    The numbers come from the float64 oracle; operands that differ from the described graph in
    uid, shape, strides or dtype raise an error that names them.
    """
    fake = FakeCudnn()
    spec = DeviceSpec.named(device, cudnn_version=cudnn_version)
    with replaced(
        Environment(lambda platform, ask: spec, lambda: FAKE_BACKENDS, FakeRuntime(fake))
    ):
        yield fake


@dataclass(frozen=True)
class JaxSubject:
    """``dot_product_attention`` on JAX's default device, for the conformance suite.

    JAX arrays are dense and aligned, so that a case's layout has no counterpart here.

    Attributes:
        name: for reports.
        implementation: the argument.
        spec: the device that decides what is refused when ``implementation`` is ``"cudnn"``.
    """

    name: str
    implementation: str | None = None
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
        def attend(*operands: Array) -> tuple[Array, dict[str, Array]]:
            given = dot_product_attention(
                *operands,
                is_causal=not case.band.is_full,
                causal_alignment=_alignment(case.band),
                scale=case.scale,
                return_residual=return_lse,
                deterministic=deterministic,
                implementation=self.implementation,
            )
            if not return_lse:
                return given, {}
            output, residual = given
            return output, {"lse": residual.swapaxes(1, 2)}

        query, key, value, grad_output = (_array(case, array) for array in inputs)
        if not training:
            output, lse = attend(query, key, value)
            return _result(output=output, **lse)
        output, pull, lse = jax.vjp(attend, query, key, value, has_aux=True)
        gradients = zip(("grad_query", "grad_key", "grad_value"), pull(grad_output), strict=True)
        return _result(output=output, **lse, **dict(gradients))

    def refusal(
        self, case: Case, *, training: bool, deterministic: bool = False
    ) -> tuple[Unsupported, ...]:
        if self.implementation != "cudnn" or self.spec is None or "empty" in case.tags:
            return ()
        operands = convert.specs(
            *(
                jax.ShapeDtypeStruct((batch, tokens, heads, head_dim), case.dtype.value)
                for batch, heads, tokens, head_dim in (
                    case.query_shape,
                    case.key_shape,
                    case.value_shape,
                )
            )
        )
        problem = AttentionProblem.of(
            *operands, band=case.band, training=training, deterministic=deterministic
        )
        directions = [Direction.FORWARD] + [Direction.BACKWARD] * training
        return sum((reasons(problem, self.spec, direction) for direction in directions), ())


def _array(case: Case, array: NDArray[np.float64]) -> Array:
    """``[B, H, S, D]`` in float64 as ``[B, S, H, D]`` in the case's type."""
    return jnp.asarray(array.swapaxes(1, 2), case.dtype.value)


def _result(*, lse: Array | None = None, **tensors: Array) -> Result:
    arrays = {name: np.asarray(x, np.float64).swapaxes(1, 2) for name, x in tensors.items()}
    dtypes = {name: x.dtype.name for name, x in tensors.items()}
    if lse is not None:
        arrays["lse"], dtypes["lse"] = np.asarray(lse, np.float64), lse.dtype.name
    return Result(**arrays, dtypes=dtypes)


def _alignment(band: Band) -> Alignment:
    if band not in (Band(), Band.causal(), Band.causal(Alignment.BOTTOM_RIGHT)):
        raise ValueError(f"{band} cannot be asked for yet")
    return band.alignment
