"""Operands as programs have them: unaligned, with gaps, expanded; and memory that holds garbage."""

from __future__ import annotations

import math

import pytest
import torch
from adapters import Options, assert_right, run_torch, torch_arguments, torch_bits, torch_tensors

import sdpa_torch
from sdpa_core.mask import Band
from sdpa_core.testing import Case
from sdpa_core.testing.conformance import RESULTS

CASE = Case("operands", 2, 4, 2, 40, 72, 64, 64, band=Band.causal())


@pytest.fixture
def poison(monkeypatch) -> list[str]:
    """Every tensor that is allocated without contents holds NaN; a list of what was allocated."""
    made = []
    for name in ("empty", "empty_strided", "empty_like"):
        allocate = getattr(torch, name)

        def poisoned(*arguments, name=name, allocate=allocate, **options):
            tensor = allocate(*arguments, **options)
            made.append(name)
            with torch.no_grad():
                return tensor.fill_(math.nan if tensor.is_floating_point() else 255)

        monkeypatch.setattr(torch, name, poisoned)
    return made


@pytest.mark.parametrize(
    "case",
    [
        CASE,
        Case("poison_full", 2, 4, 4, 130, 130, 128, 128),
        Case("poison_half_tile", 2, 2, 2, 192, 192, 64, 64, logits="very_negative"),
        Case("poison_unseen", 2, 4, 2, 160, 96, 64, 64, band=Band.causal("bottom_right")),
        Case("poison_mixed", 2, 2, 2, 100, 100, 192, 128, band=Band.causal()),
    ],
    ids=lambda case: case.name,
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_what_memory_held_before_does_not_matter(device, poison, case, deterministic):
    for training in (False, True):
        assert_right(run_torch(case, device, Options(training, deterministic)), case)
    assert "empty_strided" in poison


def attend(tensors, case=CASE):
    """Output, log-sum-exp and gradients as they are computed from these tensors."""
    *operands, incoming = tensors
    operands = [tensor.detach().requires_grad_() for tensor in operands]
    output, lse = sdpa_torch.scaled_dot_product_attention(
        *operands, **torch_arguments(case), return_lse=True, backend="cudnn"
    )
    gradients = torch.autograd.grad(output, operands, incoming)
    results = zip(RESULTS, (output, lse, *gradients), strict=True)
    return {name: torch_bits(tensor) for name, tensor in results}


def inside_nan(tensor, *, pad_last, offset=0):
    """The same tensor as a view into a buffer of NaN, with unused elements after every row."""
    *outer, last = tensor.shape
    buffer = torch.full((math.prod(outer) * (last + pad_last) + offset,), math.nan)
    buffer = buffer.to(tensor.device, tensor.dtype)
    view = buffer[offset:].view(*outer, last + pad_last)[..., :last]
    view.copy_(tensor)
    return view


@pytest.mark.parametrize(
    ("pad_last", "offset"), [(0, 1), (0, 4), (8, 0), (8, 8), (3, 0), (1, 1)], ids=str
)
@pytest.mark.parametrize("which", [(0,), (1, 2), (3,), (0, 1, 2, 3)], ids=str)
def test_slices(device, pad_last, offset, which):
    """Read in place where the hardware can, copied where not; what lies between never matters."""
    tensors = torch_tensors(CASE, CASE.arrays(), device, "bhsd")
    for index in which:
        tensors[index] = inside_nan(tensors[index], pad_last=pad_last, offset=offset)
    assert_right(attend(tensors), CASE)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3), (1, 2, 0, 3)], ids=str)
def test_any_order_of_axes(device, order):
    back = [order.index(axis) for axis in range(4)]
    tensors = torch_tensors(CASE, CASE.arrays(), device, "bhsd")
    tensors = [x.permute(order).contiguous().permute(back) for x in tensors]
    assert_right(attend(tensors), CASE)


def test_the_last_axis_need_not_be_the_innermost(device):
    tensors = torch_tensors(CASE, CASE.arrays(), device, "bhsd")
    tensors = [x.mT.contiguous().mT for x in tensors]
    assert_right(attend(tensors), CASE)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("kind", ["sum", "mean over heads", "expanded over tokens"])
def test_expanded_gradients(device, layout, kind):
    """``out.sum().backward()`` sends one number with strides 0; it is the same as a dense one."""
    *operands, _ = torch_tensors(CASE, CASE.arrays(), device, layout)
    shape = CASE.output_shape
    ones = torch.ones((), dtype=operands[0].dtype, device=device)
    row = torch.linspace(-1, 1, shape[-1], device=device).to(operands[0].dtype)
    incoming = {
        "sum": ones.expand(shape),
        "mean over heads": operands[0][:, :1].detach().expand(shape),
        "expanded over tokens": row.expand(shape),
    }[kind]
    dense = operands[0].new_empty(shape).copy_(incoming)
    expanded, wanted = attend([*operands, incoming]), attend([*operands, dense])
    for name in ("grad_query", "grad_key", "grad_value"):
        one, other = (
            torch.from_numpy(found[name].view("int16")).view(operands[0].dtype).double()
            for found in (expanded, wanted)
        )
        # Not bitwise: the gradients' sums are atomic, in an order that may change.
        assert (one - other).norm() <= 1e-3 * other.norm()


def test_sum_backward(device):
    query, key, value = (x.requires_grad_() for x in torch_tensors(CASE, CASE.arrays(), device)[:3])
    arguments = torch_arguments(CASE) | {"backend": "cudnn"}
    sdpa_torch.scaled_dot_product_attention(query, key, value, **arguments).sum().backward()
    # Every row of P sums to 1, so V's gradient sums to the number of rows of each head.
    total = value.grad.double().sum((2, 3)).cpu()
    _, heads, tokens, head_dim = CASE.output_shape
    expected = heads // CASE.heads_kv * tokens * head_dim
    torch.testing.assert_close(total, torch.full_like(total, expected), rtol=2e-2, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("dims", [(192, 128), (128, 64), (256, 128), (64, 128)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_head_dims_that_differ(dims, causal):
    band = Band.causal() if causal else Band()
    case = Case(f"dims_{dims}_{causal}", 2, 4, 2, 320, 320, *dims, band=band)
    for deterministic in (False, True):
        assert_right(run_torch(case, "cuda", Options(True, deterministic)), case)
