"""One attention problem run by both adapters, from the same numbers, as bits and as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sdpa_core import DType
from sdpa_core.testing import Case, Inputs, Result, decode, encode
from sdpa_core.testing.conformance import RESULTS, assert_matches

#: The results as they lie in memory, ``[B, H, S, D]`` (``lse``: ``[B, H, S]``), by name.
Bits = dict[str, np.ndarray]


@dataclass(frozen=True)
class Options:
    """Arguments of both adapters."""

    training: bool = True
    deterministic: bool = False


def torch_tensors(case: Case, inputs: Inputs, device: str, layout: str = "bshd") -> list[Any]:
    """Query, key, value and the output's gradient ``[B, H, S, D]``, stored as ``layout`` says."""
    return [_torch_tensor(array, case.dtype, device, layout) for array in inputs.operands]


def _torch_tensor(array: np.ndarray, dtype: DType, device: str, layout: str) -> Any:
    import torch

    stored = array.swapaxes(1, 2) if layout == "bshd" else array
    bits = torch.from_numpy(np.ascontiguousarray(encode(stored, dtype)))
    tensor = (bits.view(torch.bfloat16) if dtype is DType.BFLOAT16 else bits).to(device)
    return tensor.transpose(1, 2) if layout == "bshd" else tensor


def torch_arguments(case: Case) -> dict[str, Any]:
    """Keyword arguments of ``scaled_dot_product_attention`` for a case."""
    return {
        "is_causal": not case.band.is_full,
        "causal_alignment": str(case.band.alignment),
        "scale": case.scale,
        "enable_gqa": True,
    }


def run_torch(
    case: Case,
    device: str,
    options: Options = Options(),
    *,
    inputs: Inputs | None = None,
    layout: str = "bshd",
    backend: str | None = "cudnn",
) -> Bits:
    """Output, log-sum-exp and gradients by ``sdpa_torch``."""
    import torch

    import sdpa_torch

    tensors = torch_tensors(case, inputs or case.arrays(), device, layout)
    *operands, incoming = tensors
    operands = [tensor.requires_grad_(options.training) for tensor in operands]
    output, lse = sdpa_torch.scaled_dot_product_attention(
        *operands,
        **torch_arguments(case),
        return_lse=True,
        deterministic=options.deterministic,
        backend=backend,
    )
    gradients = torch.autograd.grad(output, operands, incoming) if options.training else ()
    return {
        name: torch_bits(tensor)
        for name, tensor in zip(RESULTS, (output, lse, *gradients), strict=False)
    }


def run_jax(
    case: Case,
    options: Options = Options(),
    *,
    inputs: Inputs | None = None,
    implementation: str | None = "cudnn",
) -> Bits:
    """The same by ``sdpa_jax`` on JAX's default device."""
    import jax

    import sdpa_jax

    def attend(*operands: Any) -> tuple[Any, Any]:
        return sdpa_jax.dot_product_attention(
            *operands,
            is_causal=not case.band.is_full,
            causal_alignment=case.band.alignment,
            scale=case.scale,
            return_residual=True,
            deterministic=options.deterministic,
            implementation=implementation,
        )

    given = inputs or case.arrays()
    *operands, incoming = (_jax_array(array, case.dtype) for array in given.operands)
    if options.training:
        output, pull, lse = jax.vjp(attend, *operands, has_aux=True)
        results = (output, lse, *pull(incoming))
    else:
        results = jax.jit(attend)(*operands)
    arrays = zip(RESULTS, map(np.asarray, results), strict=False)
    return {name: _unsigned(array).swapaxes(1, 2) for name, array in arrays}


def _jax_array(array: np.ndarray, dtype: DType) -> Any:
    import jax.numpy as jnp

    stored = np.ascontiguousarray(encode(array.swapaxes(1, 2), dtype))
    return jnp.asarray(stored.view(jnp.dtype(dtype.value)))


def torch_bits(tensor: Any) -> np.ndarray:
    """A tensor's memory as unsigned integers of its element's size."""
    import torch

    signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return _unsigned(tensor.detach().contiguous().view(signed).cpu().numpy())


def _unsigned(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def numbers(bits: np.ndarray, dtype: DType) -> np.ndarray:
    """The float64 numbers that these bits are."""
    stored = bits if dtype is DType.BFLOAT16 else bits.view(np.dtype(dtype.value))
    return decode(stored, dtype)


def dtype_of(name: str, case: Case) -> DType:
    """The element type of a result."""
    return DType.FLOAT32 if name == "lse" and case.dtype is not DType.FLOAT64 else case.dtype


def as_numbers(bits: Bits, case: Case) -> dict[str, np.ndarray]:
    return {name: numbers(found, dtype_of(name, case)) for name, found in bits.items()}


def assert_right(bits: Bits, case: Case) -> None:
    """Raise unless all of these results of the case's own inputs match the oracle."""
    dtypes = {name: str(dtype_of(name, case)) for name in bits}
    assert_matches(Result(**as_numbers(bits, case), dtypes=dtypes), case, tuple(bits))


def assert_same_bits(first: Bits, second: Bits) -> None:
    """Raise unless these results are the same, bit by bit."""
    assert first.keys() == second.keys()
    for name, bits in first.items():
        different = np.count_nonzero(bits != second[name])
        assert not different, f"{name} differs in {different} of {bits.size} elements"


def distance(first: Bits, second: Bits, case: Case) -> dict[str, float]:
    """By result: the norm of the difference over the norm."""
    one, other = as_numbers(first, case), as_numbers(second, case)
    return {name: _relative(one[name], other[name]) for name in one}


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    """Where both are the same infinity (rows that see no key) there is no difference."""
    different = found != wanted
    if not different.any():
        return 0.0
    size = np.linalg.norm(wanted[np.isfinite(wanted)])
    return float(np.linalg.norm(found[different] - wanted[different]) / size)


def largest_distance(runs: list[Bits], case: Case) -> dict[str, float]:
    """By result: the largest distance between two of the runs."""
    pairs = [(a, b) for number, a in enumerate(runs) for b in runs[:number]]
    found = [distance(a, b, case) for a, b in pairs]
    return {name: max(each[name] for each in found) for name in RESULTS}
