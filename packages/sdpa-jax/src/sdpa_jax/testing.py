"""The adapter under test: its conformance subject, and its cuDNN path without cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    DeviceSpec,
    Direction,
    DType,
    Plan,
    Unsupported,
)
from sdpa_core.cudnn.graph import Operand
from sdpa_core.paged import INFERENCE_ONLY
from sdpa_core.testing import Case, DropoutState, Inputs, Packing, Result, place_all, round_to
from sdpa_core.testing.fake_cudnn import FAKE_BACKENDS, FakeCudnn, OperandView

from . import rng
from .cudnn.operands import memory_axes
from .dispatch import Environment, replaced
from .explain import explain, explain_paged, explain_varlen
from .functional import dot_product_attention
from .paged import paged_attention
from .varlen import varlen_attention


class FakeRuntime:
    """``cudnn.Runtime`` on the fake: every launch is checked against its described graph."""

    def __init__(self, fake: FakeCudnn) -> None:
        self._fake = fake

    def plan(self, problem: AttentionProblem, spec: DeviceSpec, direction: Direction) -> Plan:
        return self._fake.plan(problem, spec, direction)

    def execute(
        self,
        plan: Plan,
        inputs: Sequence[Array],
        results: Sequence[jax.ShapeDtypeStruct],
        scalars: Sequence[float],
    ) -> list[Array]:
        def on_host(*arrays: Array) -> list[NDArray[Any]]:
            given = [np.asarray(array) for array in arrays]
            given += [np.zeros(result.shape, result.dtype) for result in results]
            operands = (*plan.inputs, *plan.outputs)
            views = {o.uid: _view(o, array) for o, array in zip(operands, given, strict=True)}
            numbers = {o.uid: x for o, x in zip(plan.scalars, scalars, strict=True)}
            found = self._fake.execute(plan, views, numbers)
            return [_stored(operand, found[operand.uid]) for operand in plan.outputs]

        return list(jax.pure_callback(on_host, list(results), *inputs))


def _view(operand: Operand, array: NDArray[Any]) -> OperandView:
    """A dense array as the graph sees it; packed ones and pairs of words as they are."""
    array = np.ascontiguousarray(array)
    as_it_is = operand.ragged is not None or operand.dtype is DType.INT64
    dense = array
    if not as_it_is:
        stored = array.transpose(_graph_axes(operand))
        repeats = zip(operand.shape, operand.strides, stored.shape, strict=True)
        shape = [n if stride == 0 else m for n, stride, m in repeats]
        dense = np.broadcast_to(stored, shape)
    return OperandView(
        array=dense if dense.dtype.kind in "iub" else dense.astype(np.float64),
        strides=tuple(stride // array.itemsize for stride in dense.strides),
        dtype=DType.INT64 if dense.dtype == np.uint32 else DType(array.dtype.name),
    )


def _graph_axes(operand: Operand) -> list[int]:
    axes = memory_axes(operand)
    return [axes.index(axis) for axis in range(len(axes))]


def _stored(operand: Operand, array: NDArray[np.float64]) -> NDArray[Any]:
    rounded = round_to(array, operand.dtype)
    if operand.ragged is None:
        rounded = rounded.transpose(memory_axes(operand))
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
    """The public functions on JAX's default device, for the conformance suite.

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
        return_max_logit: bool = False,
        deterministic: bool = False,
    ) -> Result:
        request = _request(case, inputs)
        asked = ("lse",) * return_lse + ("max_logit",) * return_max_logit
        options: dict[str, Any] = {
            "lse": return_lse,
            "return_max_logit": return_max_logit,
            "deterministic": deterministic,
            "implementation": self.implementation,
        }

        def attend(trained: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
            given = request.call(trained, **options)
            output, *further = given if asked else (given,)
            return output, dict(zip(asked, further, strict=True))

        if not training:
            output, further = attend({})
            return request.result(output=output, **further)
        trained = {name: request.arrays[name] for name in request.trained}
        output, pull, further = jax.vjp(attend, trained, has_aux=True)
        (gradients,) = pull(request.arrays["grad_output"])
        named = {f"grad_{name}": gradient for name, gradient in gradients.items()}
        return request.result(output=output, **further, **named)

    def refusal(
        self,
        case: Case,
        *,
        training: bool,
        return_lse: bool = False,
        return_max_logit: bool = False,
        deterministic: bool = False,
    ) -> tuple[Unsupported, ...]:
        if training and case.page_size is not None:
            return (INFERENCE_ONLY,)
        if self.implementation != "cudnn" or self.spec is None:
            return ()
        decision = _request(case, case.arrays()).explained(
            training,
            device=self.spec,
            lse=return_lse,
            return_max_logit=return_max_logit,
            deterministic=deterministic,
            implementation="cudnn",
        )
        answers = [answer for choice in decision.choices for _, answer in choice.rejected]
        return sum((answer.reasons for answer in answers), ())


@dataclass(frozen=True)
class _Request:
    """A case as a call of one of the public functions.

    Attributes:
        case: what is asked.
        function, explaining: who is asked.
        arrays: operands by role, in the axes of the public functions.
        options: the other arguments.
    """

    case: Case
    function: Callable[..., Any]
    explaining: Callable[..., Any]
    arrays: dict[str, Array]
    options: dict[str, Any]

    @property
    def trained(self) -> tuple[str, ...]:
        """Roles of the operands whose gradients are asked for."""
        optional = {"bias": self.case.bias_grad, "sink": True}
        wanted = (name for name, is_wanted in optional.items() if is_wanted)
        return ("query", "key", "value", *(name for name in wanted if name in self.arrays))

    def call(self, trained: dict[str, Array], *, lse: bool, **options: Any) -> Any:
        operands, others = self._arguments(trained, lse)
        return self.function(*operands, **others, **options)

    def explained(self, training: bool, *, lse: bool, **options: Any) -> Any:
        operands, others = self._arguments({}, lse)
        if self.case.page_size is None:
            frozen = {"bias", "sink"} - set(self.trained)
            options |= {"training": training, "frozen": tuple(frozen)}
        return self.explaining(*operands, **others, **options)

    def _arguments(self, trained: dict[str, Array], lse: bool) -> tuple[list[Array], Any]:
        arrays = self.arrays | trained
        options = dict(self.options)
        options["return_residual" if self._is_dense else "return_lse"] = lse
        for role in ("bias", "mask", "sink"):
            if role in arrays:
                options[role] = arrays[role]
        return [arrays[name] for name in ("query", "key", "value")], options

    @property
    def _is_dense(self) -> bool:
        return self.function is dot_product_attention

    def result(self, **found: Array) -> Result:
        """Padded, ``[B, H, S, D]``."""
        arrays, gaps = {}, {}
        for name, array in found.items():
            numbers = np.asarray(array, np.float64)
            packing = self._packing(name)
            if packing is not None:
                arrays[name] = packing.unpack(numbers, fill=-np.inf if name == "lse" else 0.0)
                gaps[name] = packing.gap_rows(numbers)
            elif (numbers.ndim == 4 and name != "grad_bias") or (name == "lse" and self._is_dense):
                arrays[name] = numbers.swapaxes(1, 2)
            else:
                arrays[name] = numbers
        dtypes = {name: array.dtype.name for name, array in found.items()}
        return Result(**arrays, dtypes=dtypes, dropout=self._dropout, gaps=gaps)

    def _packing(self, name: str) -> Packing | None:
        if name in ("output", "lse", "grad_query"):
            return self.case.packing_q
        return self.case.packing_kv if name in ("grad_key", "grad_value") else None

    @property
    def _dropout(self) -> DropoutState | None:
        if self.case.dropout_p == 0:
            return None
        low, high = np.asarray(rng.seed(self.options["dropout_key"]), np.uint64).tolist()
        return DropoutState(low + (high << 32))


def _request(case: Case, inputs: Inputs) -> _Request:
    arrays = {name: _array(case, name, placed) for name, placed in place_all(case, inputs).items()}
    options: dict[str, Any] = {
        "is_causal": case.band.right == 0,
        "causal_alignment": case.band.alignment,
        "scale": case.scale,
        "softmax": case.softmax,
        "softcap": case.softcap,
        "alibi": arrays.get("alibi_slopes", case.alibi == "standard"),
    }
    if case.dropout_p > 0:
        options |= {"dropout_rate": case.dropout_p, "dropout_key": jax.random.key(case.seed)}
    window = (case.band.left, case.band.right)
    windowed = case.band.left is not None or case.band.right not in (None, 0)
    if case.page_size is not None:
        options["window"] = window if windowed else None
        options |= {
            "page_table": arrays["page_table_k"],
            "value_page_table": arrays["page_table_v"],
            "seq_lens_kv": arrays["seq_lens_kv"],
        }
        queries = {k: v for k, v in _varlen(case, arrays).items() if k != "seq_lens_kv"}
        return _Request(case, paged_attention, explain_paged, arrays, options | queries)
    if case.packed is not None:
        options["window"] = window if windowed else None
        return _Request(
            case, varlen_attention, explain_varlen, arrays, options | _varlen(case, arrays)
        )
    if windowed:
        options["local_window_size"] = window
    for name, role in _LENGTHS.items():
        if role in arrays:
            options[name] = arrays[role]
    if case.score_mod_case is not None:
        options |= {
            "score_mod": case.score_mod_case.callback,
            "score_mod_bprop": case.score_mod_case.bprop,
            "score_mod_args": _auxiliary(case, arrays),
        }
    return _Request(case, dot_product_attention, explain, arrays, options)


_LENGTHS = {"query_seq_lengths": "seq_lens_q", "key_value_seq_lengths": "seq_lens_kv"}


def _varlen(case: Case, arrays: dict[str, Array]) -> dict[str, Any]:
    named = {
        "cu_seq_q": "cu_seqlens_q",
        "cu_seq_k": "cu_seqlens_kv",
        "cu_seq_q_padded": "cu_seqlens_q_padded",
        "cu_seq_k_padded": "cu_seqlens_kv_padded",
        "seq_lens_q": "seq_lens_q",
        "seq_lens_kv": "seq_lens_kv",
    }
    found: dict[str, Any] = {name: arrays[role] for name, role in named.items() if role in arrays}
    longest = {"max_q": (case.packs_q, case.tokens_q), "max_k": (case.packs_kv, case.tokens_kv)}
    return found | {name: tokens for name, (packs, tokens) in longest.items() if packs}


def _auxiliary(case: Case, arrays: dict[str, Array]) -> tuple[Any, ...]:
    assert case.score_mod_case is not None
    operands = case.score_mod_case.auxiliary
    found = (arrays[f"score_mod_{i}"] for i in range(len(operands)))
    return tuple(
        float(x) if operand.axes is None else x for operand, x in zip(operands, found, strict=True)
    )


def _array(case: Case, name: str, placed: Any) -> Array:
    """An operand in its type and in the axes of the public functions."""
    array = placed.read()
    is_pool = case.page_size is not None and name in ("key", "value")
    if name in ("query", "key", "value", "grad_output") and array.ndim == 4 and not is_pool:
        array = array.swapaxes(1, 2)
    return jnp.asarray(array, placed.dtype.value)
