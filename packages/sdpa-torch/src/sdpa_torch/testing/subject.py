"""The adapter's functions as the conformance suite calls them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdpa_core import AttentionProblem, DeviceSpec, Direction, DType, TensorSpec, Unsupported
from sdpa_core.cudnn.rules import reasons
from sdpa_core.layout import row_major
from sdpa_core.paged import INFERENCE_ONLY
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed
from sdpa_core.tensor import VECTOR_BYTES
from sdpa_core.testing import Case, DropoutState, Inputs, Placed, Result, place_all, problem_of

from .. import rng
from ..convert import DTYPES, TORCH_DTYPES, is_regular
from ..functional import scaled_dot_product_attention
from ..packing import SequenceLayout
from ..paged import paged_attention
from ..varlen import varlen_attention

#: What every call with dropout is computed from.
_SEED = 0x123456789ABCDEF

_GRADIENTS = ("query", "key", "value", "bias", "sink")


@dataclass(frozen=True)
class TorchSubject:
    """The public functions on a device, for the conformance suite.

    Attributes:
        name: for reports.
        device: where the operands live.
        backend: the ``backend`` argument.
        spec: the device that decides what is refused when ``backend`` is ``"cudnn"``.
        grad_like_output: the gradient of the output is stored like it, as JAX's is.
    """

    name: str
    device: str = "cpu"
    backend: str | None = None
    spec: DeviceSpec | None = None
    grad_like_output: bool = False

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
        operands = {name: self._tensor(p) for name, p in place_all(case, inputs).items()}
        incoming = operands.pop("grad_output")
        learned = _differentiable(case, operands) if training else ()
        for name in learned:
            operands[name] = operands[name].requires_grad_()
        options = {
            "scale": case.scale,
            "softcap": case.softcap,
            "return_lse": return_lse,
            "return_max_logit": return_max_logit,
            "deterministic": deterministic,
            "backend": self.backend,
        }
        with rng.fixed(_SEED):
            given = _call(case, operands, options)
        names = ["output", *["lse"] * return_lse, *["max_logit"] * return_max_logit]
        found = dict(zip(names, given if len(names) > 1 else (given,), strict=True))
        if training:
            if self.grad_like_output:
                incoming = torch.empty_like(found["output"]).copy_(incoming)
            grads = torch.autograd.grad(
                found["output"], [operands[name] for name in learned], incoming
            )
            found |= {f"grad_{name}": grad for name, grad in zip(learned, grads, strict=True)}
        return _result(case, found)

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
        problem = problem_of(
            case,
            training=training,
            return_lse=return_lse,
            return_max_logit=return_max_logit,
            deterministic=deterministic,
        )
        if self.backend != "cudnn" or self.spec is None or problem.is_empty:
            return ()
        problem = _as_copied(problem)
        forward = reasons(problem, self.spec, Direction.FORWARD)
        return forward + (reasons(problem, self.spec, Direction.BACKWARD) if training else ())

    def _tensor(self, placed: Placed) -> Tensor:
        buffer = torch.from_numpy(placed.buffer.copy())
        if placed.dtype is DType.BFLOAT16:
            buffer = buffer.view(torch.bfloat16)
        buffer = buffer.to(self.device, TORCH_DTYPES[placed.dtype])
        return buffer.as_strided(placed.shape, placed.strides, placed.offset).detach()


def _differentiable(case: Case, operands: dict[str, Tensor]) -> tuple[str, ...]:
    return tuple(
        name
        for name in _GRADIENTS
        if name in operands and not (name == "bias" and not case.bias_grad)
    )


def _call(case: Case, operands: dict[str, Tensor], options: dict[str, Any]) -> Any:
    options = options | {
        "is_causal": case.band.right == 0,
        "causal_alignment": str(case.band.alignment),
        "window": _window(case),
        "alibi": operands.get("alibi_slopes", case.alibi == "standard"),
        "sink": operands.get("sink"),
        "softmax": "off_by_one" if case.softmax is Softmax.OFF_BY_ONE else "vanilla",
    }
    if case.page_size is not None:
        return _paged(case, operands, options)
    options["dropout_p"] = case.dropout_p
    options |= {name: operands.get(name) for name in ("seq_lens_q", "seq_lens_kv")}
    tensors = (operands["query"], operands["key"], operands["value"])
    if case.packed is not None:
        layout = SequenceLayout(
            operands.get("cu_seqlens_q"),
            operands.get("cu_seqlens_kv"),
            case.tokens_q if case.packs_q else None,
            case.tokens_kv if case.packs_kv else None,
            operands.get("cu_seqlens_q_padded"),
            operands.get("cu_seqlens_kv_padded"),
        )
        return varlen_attention(*tensors, layout=layout, **options)
    function = case.score_mod_case
    if function is not None:
        options |= {
            "score_mod": function.callback,
            "score_mod_bprop": function.bprop,
            "score_mod_args": tuple(_auxiliary(operands)),
        }
    mask = operands.get("bias", operands.get("mask"))
    return scaled_dot_product_attention(*tensors, mask, enable_gqa=True, **options)


def _paged(case: Case, operands: dict[str, Tensor], options: dict[str, Any]) -> Any:
    packed: dict[str, Any] = {}
    if case.packs_q:
        packed = {
            "cu_seq_q": operands["cu_seqlens_q"],
            "cu_seq_q_padded": operands.get("cu_seqlens_q_padded"),
            "max_q": case.tokens_q,
        }
    return paged_attention(
        operands["query"],
        operands["key"],
        operands["value"],
        operands["page_table_k"],
        operands["seq_lens_kv"],
        value_page_table=operands["page_table_v"] if case.own_value_table else None,
        seq_lens_q=operands.get("seq_lens_q"),
        **packed,
        **options,
    )


def _window(case: Case) -> tuple[int | None, int | None] | None:
    if case.band.left is None and case.band.right in (None, 0):
        return None
    return case.band.left, case.band.right


def _auxiliary(operands: dict[str, Tensor]) -> Iterator[Tensor | float]:
    """Arrays without axes are numbers."""
    number = 0
    while (given := operands.get(f"score_mod_{number}")) is not None:
        yield given if given.dim() else float(given)
        number += 1


def _result(case: Case, found: dict[str, Tensor]) -> Result:
    """Padded results, and what packed ones hold where no sequence is."""
    queries = {"output": 0.0, "lse": -np.inf, "grad_query": 0.0}
    arrays: dict[str, NDArray[Any]] = {}
    gaps: dict[str, NDArray[Any]] = {}
    for name, tensor in found.items():
        array = tensor.detach().double().cpu().numpy()
        keys = name in ("grad_key", "grad_value")
        packing = case.packing_q if name in queries else case.packing_kv if keys else None
        if packing is not None:
            gaps[name] = packing.gap_rows(array)
            array = packing.unpack(array, fill=queries.get(name, 0.0))
        arrays[name] = array
    return Result(
        **arrays,
        dtypes={name: str(DTYPES[tensor.dtype]) for name, tensor in found.items()},
        dropout=DropoutState(_SEED) if case.dropout_p else None,
        gaps=gaps,
    )


def _as_copied(problem: AttentionProblem) -> AttentionProblem:
    """The problem as cuDNN gets it: the adapter copies what it cannot read in place."""
    bias = problem.bias
    if bias is not None and (bias.strides[-1] != 1 or bias.alignment < VECTOR_BYTES):
        bias = TensorSpec(bias.shape, row_major(bias.shape), bias.dtype)
    return replace(
        problem,
        query=_readable(problem.query, problem.packed_q),
        key=_readable(problem.key, problem.packed_kv),
        value=_readable(problem.value, problem.packed_kv),
        bias=bias,
    )


def _readable(spec: TensorSpec, packed: Packed | None) -> TensorSpec:
    shape, strides = spec.shape, spec.strides
    if packed is not None:
        # In memory [tokens, heads, head_dim]; the longest sequence may have a single token.
        shape, strides = (packed.tokens, *shape[1::2]), (strides[2], *strides[1::2])
    regular = is_regular(shape, strides, spec.dtype.itemsize)
    return spec if regular and spec.alignment == VECTOR_BYTES else spec.like(spec.shape)
