"""What dense attention takes besides query, key and value: meaning, gradients, transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as torch_sdpa

import sdpa_torch
from sdpa_core import NoBackendError
from sdpa_torch import attend
from sdpa_torch import scaled_dot_product_attention as sdpa
from sdpa_torch.testing import fake_cudnn, fixed_seed


def rand(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator)


QUERY, KEY, VALUE = rand(2, 4, 5, 8), rand(2, 2, 9, 8, seed=1), rand(2, 2, 9, 6, seed=2)
BIAS, SINK = rand(1, 4, 5, 9, seed=3), rand(4, seed=4)
LENGTHS_Q, LENGTHS_KV = torch.tensor([5, 2]), torch.tensor([3, 9])
WEIGHTS = rand(1, 4, 1, 9, seed=5).float()


def modified(graph: Any, score: Any, weights: Any, factor: Any) -> Any:
    return score * weights + score * score * factor


def everything(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, sink: Tensor) -> Tensor:
    output: Tensor = sdpa(
        query,
        key,
        value,
        bias,
        is_causal=True,
        enable_gqa=True,
        causal_alignment="bottom_right",
        window=(4, 0),
        sink=sink,
        softcap=3.0,
        alibi=True,
        score_mod=modified,
        score_mod_args=(WEIGHTS, 0.1),
        seq_lens_q=LENGTHS_Q,
        seq_lens_kv=LENGTHS_KV,
    )
    return output


OPERANDS = (QUERY, KEY, VALUE, BIAS, SINK)


def learned() -> list[Tensor]:
    return [tensor.clone().requires_grad_() for tensor in OPERANDS]


# ------------------------------------------------------------------------------------ masks


@pytest.mark.parametrize(
    ("shapes", "mask"),
    [
        (((2, 4, 5, 8), (2, 4, 9, 8)), (5, 9)),
        (((2, 4, 5, 8), (2, 4, 9, 8)), (2, 1, 1, 9)),
        (((2, 4, 5, 8), (2, 4, 9, 8)), (4, 1, 1)),
        (((4, 5, 8), (4, 9, 8)), (4, 5, 9)),
        (((5, 8), (9, 8)), (5, 1)),
        (((2, 3, 4, 5, 8), (2, 3, 4, 9, 8)), (3, 1, 5, 9)),
        (((2, 3, 4, 5, 8), (2, 3, 4, 9, 8)), (1, 1, 4, 1, 9)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["numbers", "boolean"])
def test_a_mask_broadcasts_as_torchs(shapes: Any, mask: tuple[int, ...], kind: str) -> None:
    query, key = (rand(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes))
    given = torch.randn(mask, dtype=torch.float64)
    if kind == "boolean":
        given = given > -0.5
    theirs = torch_sdpa(query, key, key, attn_mask=given)
    seen = ~theirs.isnan()  # (torch's row that sees nothing; ours is 0)
    ours = sdpa(query, key, key, given)
    torch.testing.assert_close(ours[seen], theirs[seen])
    assert not ours[~seen].any()
    if kind == "numbers":
        bias = given.requires_grad_()
        incoming = rand(*theirs.shape, seed=8)
        found = torch.autograd.grad(sdpa(query, key, key, bias), (query, bias), incoming)
        exact = torch.autograd.grad(torch_sdpa(query, key, key, bias), (query, bias), incoming)
        for mine, other in zip(found, exact, strict=True):
            torch.testing.assert_close(mine, other)


def test_a_mask_goes_with_is_causal() -> None:
    query = rand(2, 4, 6, 8)
    mask = torch.ones(6, 6).bool()
    mask[:, 0] = False
    output = sdpa(query, query, query, mask, is_causal=True)
    both = mask & torch.ones(6, 6).bool().tril()
    torch.testing.assert_close(output[:, :, 1:], torch_sdpa(query, query, query, both)[:, :, 1:])
    assert not output[:, :, 0].any()


def test_a_float32_bias_keeps_its_precision() -> None:
    query = rand(1, 2, 16, 8, dtype=torch.bfloat16)
    bias = torch.full((16, 16), 1.0).requires_grad_()
    sdpa(query, query, query, bias).sum().backward()
    assert bias.grad is not None
    assert bias.grad.dtype == torch.float32


def test_autocast_takes_a_mask_of_any_float() -> None:
    query, bias = rand(1, 2, 6, 8, dtype=torch.float32), rand(6, 6, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        plain = sdpa(query, query, query, bias)
        assert plain.dtype == torch.bfloat16
        sdpa(query, query, query, bias.half())


# ------------------------------------------------------------------------------- denominators


def test_a_sink_is_a_key_without_a_value() -> None:
    query, key = rand(1, 4, 5, 8), rand(1, 4, 9, 8)
    output, lse, largest = sdpa(query, key, key, sink=SINK, return_lse=True, return_max_logit=True)
    logits = query @ key.mT / 8**0.5
    joined = torch.cat([logits, SINK[:, None, None].expand(1, 4, 5, 1)], -1)
    torch.testing.assert_close(lse, joined.logsumexp(-1))
    torch.testing.assert_close(output, joined.softmax(-1)[..., :-1] @ key)
    torch.testing.assert_close(largest, logits.amax((0, 2, 3)))
    one = sdpa(query, key, key, softmax="off_by_one")
    torch.testing.assert_close(one, sdpa(query, key, key, sink=torch.zeros(4)))


def test_a_16_bit_sink_has_a_gradient_of_its_type() -> None:
    sink = torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)
    query = rand(1, 4, 16, 8, dtype=torch.bfloat16)
    for backend in ("reference", "cudnn"):
        with fake_cudnn():
            output = sdpa(query, query, query, sink=sink, backend=backend)
            (grad,) = torch.autograd.grad(output.float().square().sum(), sink)
        assert grad.dtype == torch.bfloat16
        assert grad.any()


def test_no_key_leaves_the_sink() -> None:
    query, none = rand(2, 4, 5, 8).requires_grad_(), rand(2, 4, 0, 8)
    sink = SINK.clone().requires_grad_()
    output, lse, largest = sdpa(
        query, none, none, sink=sink, return_lse=True, return_max_logit=True, seq_lens_q=LENGTHS_Q
    )
    assert not output.any()
    torch.testing.assert_close(lse[0], SINK[:, None].expand(4, 5))
    assert (lse[1, :, 2:] == -torch.inf).all()
    assert (largest == -torch.inf).all()
    output.sum().backward()
    assert sink.grad is not None
    assert not sink.grad.any()


# ------------------------------------------------------------------------------------ layouts


@pytest.mark.parametrize(("layout", "order"), [("bshd", (0, 2, 1, 3)), ("sbhd", (2, 0, 1, 3))])
def test_layouts_are_views(layout: str, order: tuple[int, ...]) -> None:
    query, key, value = (
        rand(2, 4, 6, 8, dtype=torch.bfloat16, seed=seed).permute(order).contiguous()
        for seed in range(3)
    )
    back = [order.index(axis) for axis in range(4)]
    exact = sdpa(*(tensor.permute(back) for tensor in (query, key, value)), return_lse=True)
    output, lse = sdpa(query, key, value, layout=layout, return_lse=True)
    assert torch.equal(output.permute(back), exact[0])
    assert torch.equal(lse, exact[1])
    assert output.is_contiguous()
    with fake_cudnn() as fake:
        sdpa(query, key, value, layout=layout, backend="cudnn")
    strides = fake.executed[0].graph.operand("query").strides
    assert strides == query.permute(back).stride()


# ------------------------------------------------------------------------------------ dropout


def test_dropout_follows_the_generator() -> None:
    def once() -> Tensor:
        torch.manual_seed(7)
        return sdpa(QUERY, KEY, VALUE, dropout_p=0.5, enable_gqa=True)

    assert torch.equal(once(), once())
    assert not torch.equal(once(), sdpa(QUERY, KEY, VALUE, dropout_p=0.5, enable_gqa=True))


def test_no_dropout_and_explain_leave_the_generator_alone() -> None:
    before = torch.get_rng_state()
    sdpa(QUERY, KEY, VALUE, dropout_p=0.0, enable_gqa=True)
    sdpa_torch.explain(QUERY, KEY, VALUE, dropout_p=0.5, enable_gqa=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_scales_what_it_keeps() -> None:
    ones = torch.ones(1, 1, 512, 16)
    output = sdpa(torch.zeros(1, 1, 64, 16), ones, ones, dropout_p=0.25)
    assert output.mean().sub(1).abs() < 0.02
    assert (output != 1).any()


def test_both_directions_drop_the_same() -> None:
    with fixed_seed(5):
        assert torch.autograd.gradcheck(
            lambda *t: sdpa(*t, None, 0.4, enable_gqa=True), learned()[:3]
        )


def test_checkpointing_repeats_the_seed() -> None:
    from torch.utils.checkpoint import checkpoint

    query = QUERY.clone().requires_grad_()

    def run(tensor: Tensor) -> Tensor:
        return sdpa(tensor, tensor, tensor, dropout_p=0.5)

    torch.manual_seed(1)
    (plain,) = torch.autograd.grad(run(query).square().sum(), query)
    torch.manual_seed(1)
    output = checkpoint(run, query, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(output.square().sum(), query)[0], plain)


def test_vmap_follows_randomness() -> None:
    batch = torch.zeros(3)

    def run(_: Tensor) -> Tensor:
        return sdpa(QUERY, KEY, VALUE, dropout_p=0.5, enable_gqa=True)

    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(run)(batch)
    same = torch.vmap(run, randomness="same")(batch)
    assert torch.equal(same[0], same[1])
    different = torch.vmap(run, randomness="different")(batch)
    assert not torch.equal(different[0], different[1])


# ------------------------------------------------------------------------ gradients, transforms


def test_gradients_against_finite_differences() -> None:
    assert torch.autograd.gradcheck(everything, learned())


def test_a_gradient_that_is_given() -> None:
    """``score_mod_bprop`` is what is used: here it is twice the true one."""
    query = QUERY.clone().requires_grad_()
    options: dict[str, Any] = {"score_mod": lambda graph, score: score * 2.0, "enable_gqa": True}
    twice: dict[str, Any] = {"score_mod_bprop": lambda graph, grad, score: grad * 4.0}
    (plain,) = torch.autograd.grad(sdpa(query, KEY, VALUE, **options).sum(), query)
    (given,) = torch.autograd.grad(sdpa(query, KEY, VALUE, **options, **twice).sum(), query)
    torch.testing.assert_close(given, 2 * plain)


def test_frozen_operands_cost_no_gradient() -> None:
    query, bias = QUERY.clone().requires_grad_(), BIAS.clone()
    output = sdpa(query, KEY, VALUE, bias, enable_gqa=True)
    output.sum().backward()
    assert bias.grad is None
    only = BIAS.clone().requires_grad_()
    sdpa(QUERY, KEY, VALUE, only, enable_gqa=True).square().sum().backward()
    assert only.grad is not None
    assert only.grad.any()


def test_double_backward_refuses() -> None:
    operands = learned()
    grads = torch.autograd.grad(everything(*operands).sum(), operands, create_graph=True)
    for grad in grads[3:]:
        with pytest.raises(RuntimeError, match="attention has no second derivative"):
            torch.autograd.grad(grad.sum(), operands, retain_graph=True)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch's own vmap
@pytest.mark.parametrize("mapped", ["10000", "00010", "00001", "01010", "11111"])
def test_vmap_over_any_operand(mapped: str) -> None:
    dims = tuple(0 if flag == "1" else None for flag in mapped)
    operands = [
        torch.stack([tensor, tensor * 1.5, tensor - 0.1]) if dim == 0 else tensor
        for tensor, dim in zip(OPERANDS, dims, strict=True)
    ]

    def looped(*given: Tensor) -> Tensor:
        rows = ([t[i] if d == 0 else t for t, d in zip(given, dims, strict=True)] for i in range(3))
        return torch.stack([everything(*row) for row in rows])

    def mapped_over(*given: Tensor) -> Tensor:
        return torch.vmap(everything, in_dims=dims)(*given)

    torch.testing.assert_close(mapped_over(*operands), looped(*operands))
    found = torch.func.grad(lambda *t: mapped_over(*t).square().sum(), argnums=tuple(range(5)))(
        *operands
    )
    given = [tensor.clone().requires_grad_() for tensor in operands]
    exact = torch.autograd.grad(looped(*given).square().sum(), given)
    for mine, other in zip(found, exact, strict=True):
        torch.testing.assert_close(mine, other)


def test_vmap_over_lengths() -> None:
    lengths = torch.stack([LENGTHS_KV, LENGTHS_KV - 1])

    def run(given: Tensor) -> Tensor:
        return sdpa(QUERY, KEY, VALUE, enable_gqa=True, seq_lens_kv=given)

    expected = torch.stack([run(one) for one in lengths])
    torch.testing.assert_close(torch.vmap(run)(lengths), expected)


def test_second_derivatives_in_torch_func() -> None:
    def first(bias: Tensor) -> Tensor:
        loss = torch.func.grad(lambda b: everything(QUERY, KEY, VALUE, b, SINK).square().sum())
        return loss(bias).square().sum()

    direction, step = rand(*BIAS.shape, seed=9), 1e-6
    exact = (first(BIAS + step * direction) - first(BIAS - step * direction)) / (2 * step)
    found = (torch.func.grad(first)(BIAS) * direction).sum()
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_compile_traces_without_a_break() -> None:
    compiled = torch.compile(everything, backend="eager", fullgraph=True)
    operands = learned()
    torch.testing.assert_close(compiled(*operands), everything(*operands))
    found = torch.autograd.grad(compiled(*operands).square().sum(), operands)
    exact = torch.autograd.grad(everything(*operands).square().sum(), operands)
    for mine, other in zip(found, exact, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_compile_draws_seeds() -> None:
    def run(query: Tensor) -> Tensor:
        return sdpa(query, query, query, query[:, :1, :, 0, None] > 0, dropout_p=0.5)

    compiled = torch.compile(run, backend="eager", fullgraph=True)
    torch.manual_seed(3)
    found = compiled(QUERY)
    torch.manual_seed(3)
    torch.testing.assert_close(found, run(QUERY))


def test_an_unusual_operand_keeps_the_call_from_native_code() -> None:
    class Wrapper(torch.Tensor):
        pass

    query = rand(2, 4, 16, 8, dtype=torch.bfloat16)
    bias = torch.zeros(16, 16, dtype=torch.bfloat16).as_subclass(Wrapper)
    with fake_cudnn(), pytest.raises(NoBackendError, match=r"type\(bias\) = Wrapper"):
        sdpa(query, query, query, bias, backend="cudnn")


def test_memory_grows_with_tokens_not_their_square() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            results = result if isinstance(result, (tuple, list)) else [result]
            largest = max([largest, *(t.numel() for t in results if isinstance(t, Tensor))])
            return result

    tokens = 4096
    query = torch.zeros(1, 1, tokens, 8, device="meta").requires_grad_()
    bias = torch.zeros(1, 1, 1, tokens, device="meta").requires_grad_()
    lengths = torch.zeros(1, device="meta").int()
    options: dict[str, Any] = {"alibi": True, "softcap": 2.0, "seq_lens_kv": lengths}
    with Watch():
        output = sdpa(query, query, query, bias, 0.1, is_causal=True, **options)
        output.sum().backward()
    assert 256 * tokens <= largest < tokens * tokens // 2


def test_the_mark_of_constant_results_is_torchs_own() -> None:
    marked = torch.compiler.assume_constant_result(lambda: None)
    assert vars(attend._preferred_when_traced) == vars(marked)
