"""A wrong argument of any public function: the error names it and says what is expected.

``sdpa_jax`` has the same table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sdpa_torch
from sdpa_core import NoBackendError
from sdpa_torch.arguments.lengths import lengths_of

Table = list[tuple[str, list[Any], type[Exception], str]]

#: What the tables call by its kind.
WORDS = {
    "an array": "a torch.Tensor",
    "expected an array": "expected a torch.Tensor",
    "a number or an array": "a number or a torch.Tensor",
}


def floats(*shape: int) -> Tensor:
    return torch.ones(shape)


def integers(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.int32)


def bools(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def ints(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


#: What all functions take: an argument, wrong values of it, the error, and words of its text.
COMMON: Table = [
    ("scale", ["1", True, np.bool_(1), 1j, [0.5], floats(3)], TypeError, "expected a number"),
    (
        "scale",
        [float("nan"), float("inf"), 1e39, np.float64(1e39)],
        ValueError,
        "finite in float32",
    ),
    ("softcap", ["1", True, 1j, floats(3)], TypeError, "expected a number"),
    (
        "softcap",
        [0, -1.0, np.float32(0), float("inf"), float("nan")],
        ValueError,
        "positive finite",
    ),
    ("sink", [0.5, [0.5] * 4, "no"], TypeError, "expected an array; floating; [4]"),
    (
        "sink",
        [floats(), floats(3), floats(4, 1), floats(2, 4)],
        ValueError,
        "has shape; expected; [4]",
    ),
    ("sink", [integers(4)], TypeError, "has dtype; int32; floating"),
    ("alibi", [None, "yes", 0.5, [0.5] * 4], TypeError, "True or False; slopes; [4] or [2, 4]"),
    ("alibi", [floats(), floats(3), floats(3, 4)], ValueError, "has shape; slopes; [4] or [2, 4]"),
    ("alibi", [integers(4)], TypeError, "has dtype; int32; floating-point"),
    ("softmax", ["fast", None, 1], ValueError, "expected one of; off_by_one"),
    ("softmax", ["learnable"], ValueError, "needs a sink"),
    (
        "causal_alignment",
        ["middle", None, ["top_left"]],
        ValueError,
        "one of top_left, bottom_right",
    ),
    ("is_causal", ["False", None, [], 2, 0.0], TypeError, "True or False"),
    ("return_lse", ["yes", None, 2], TypeError, "True or False"),
    ("return_max_logit", ["yes", None, 2], TypeError, "True or False"),
    ("deterministic", ["no", 2], TypeError, "True or False"),
    ("backend", [["cudnn"], 3], TypeError, "expected a name"),
    ("backend", ["flash"], ValueError, "'flash'; expected one of; cudnn; reference"),
]
WINDOW: Table = [
    (
        "window",
        [3, "33", (1, 2, 3), np.array([3, 0])],
        TypeError,
        "(left, right), in tokens, or None",
    ),
    (
        "window",
        [(True, 0), (np.bool_(1), 0)],
        TypeError,
        "[0] is a bool; an int, in tokens, or None",
    ),
    ("window", [(0, 1.5), (0, "1"), (0, np.float32(1))], TypeError, "[1] is a; an int, in tokens"),
    ("window", [(0, -1), [0, np.int64(-1)]], ValueError, "[1] = -1; at least 0"),
]
DENSE: Table = [
    ("dropout_p", ["0.1", True, None, floats(3)], TypeError, "expected a number"),
    ("dropout_p", [1, -0.1, float("nan"), np.float32(1)], ValueError, "expected; < 1"),
    ("slack_is_finite", ["yes", None, 2], TypeError, "True or False"),
    *(
        row
        for name in ("seq_lens_q", "seq_lens_kv")
        for row in (
            (name, [3, 3.0, np.int64(3), [3, 3]], TypeError, "an array; int32 or int64; [2]"),
            (
                name,
                [integers(), integers(3), integers(2, 1)],
                ValueError,
                "has shape; expected; [2]",
            ),
            (name, [floats(2)], TypeError, "has dtype; float32; int32; int64"),
        )
    ),
    ("score_mod", ["tanh", 1.0], TypeError, "expected a function"),
    ("score_mod_bprop", [lambda graph, grad, score: grad], ValueError, "without; score_mod"),
    ("score_mod_args", [1.0, floats(5), "a"], TypeError, "expected a tuple"),
    ("score_mod_args", [(1.0,)], ValueError, "without; score_mod"),
]
#: With a function of one argument: what is wrong with it.
SCORE_MOD_ARGS: Table = [
    (
        "score_mod_args[0]",
        ["a", None, [1.0], 1j, True, np.bool_(1)],
        TypeError,
        "a number or an array",
    ),
    ("score_mod_args[0]", [float("inf"), float("nan"), 1e39], ValueError, "finite in float32"),
    (
        "score_mod_args[0]",
        [floats(3), floats(5, 5, 5), floats(1, 1, 1, 1, 5)],
        ValueError,
        "has shape; broadcast; [2, 4, 5, 5]",
    ),
    (
        "score_mod_args[0]",
        [bools(5)],
        TypeError,
        "has dtype; bool; float32, float16, bfloat16 or int32",
    ),
]
VARLEN: Table = [
    (
        "max_q",
        [True, np.bool_(1), 1.5, "6", np.float32(3), [3]],
        TypeError,
        "is a; an int, in tokens",
    ),
    ("max_k", [-1, np.int32(-1)], ValueError, "= -1; at least 0"),
    *(
        row
        for name in ("cu_seq_q", "cu_seq_k", "cu_seq_q_padded", "cu_seq_k_padded")
        for row in (
            (name, [3, np.int64(3), [0, 2, 5]], TypeError, "an array; int32 or int64; + 1]"),
            (
                name,
                [integers(), integers(3, 1), integers(0)],
                ValueError,
                "has shape; expected; + 1]",
            ),
            (name, [floats(3)], TypeError, "has dtype; float32; int32; int64"),
        )
    ),
    ("cu_seq_k", [integers(2)], ValueError, "has shape [2]"),
    ("layout", ["thd", {}], TypeError, "expected a SequenceLayout"),
]
PAGED: Table = [
    ("seq_lens_kv", [3, 3.0, [3, 3]], TypeError, "an array; int32 or int64; [2]"),
    ("seq_lens_kv", [None], TypeError, "None; [2]"),
    (
        "seq_lens_kv",
        [integers(), integers(3), integers(2, 1)],
        ValueError,
        "has shape; expected; [2]",
    ),
    ("seq_lens_kv", [floats(2)], TypeError, "has dtype; float32; int32; int64"),
    (
        "page_table",
        [3, None, [[0, 1]]],
        TypeError,
        "an array; int32 or int64; pages of a sequence]",
    ),
    ("page_table", [integers(), integers(2), integers(3, 2)], ValueError, "has shape; [2, "),
    ("page_table", [floats(2, 2)], TypeError, "has dtype; float32; int32; int64"),
    ("value_page_table", [integers(2, 3)], ValueError, "has shape [2, 3]; page_table has; [2, 2]"),
    ("value_page_table", [integers(3, 2)], ValueError, "has shape [3, 2]"),
    ("key_pages", [None, [1.0]], TypeError, "an array"),
    ("key_pages", [floats(4, 2, 8)], ValueError, "has shape [4, 2, 8]; head_dim]"),
    ("key_pages", [integers(6, 4, 2, 8)], TypeError, "has dtype; int32"),
    ("key_pages", [floats(6, 4, 2, 4)], ValueError, "has head_dim 4"),
    (
        "value_pages",
        [floats(5, 4, 2, 8)],
        ValueError,
        "has 5 pages; key_pages has 6; value_page_table",
    ),
    ("value_pages", [floats(6, 2, 2, 8)], ValueError, "has 2 tokens in a page; key_pages has 4"),
    ("value_pages", [floats(6, 4, 1, 8)], ValueError, "has 1 heads; key_pages has 2"),
]
#: NumPy's numbers, and what they mean.
NUMBERS = [
    ("scale", [np.float32(0.5), np.float16(0.5), np.float64(0.5), np.array(0.5)], 0.5),
    ("scale", [np.int64(2), np.uint8(2)], 2.0),
    ("softcap", [np.float32(0.5), np.float16(0.5), np.int64(1), np.array(1)], None),
    ("window", [(np.int64(1), np.int64(0)), [np.uint8(1), np.int32(0)], (np.array(1), 0)], (1, 0)),
    ("window", [(np.int64(1), None)], (1, None)),
    ("is_causal", [np.bool_(1), 1], True),
    ("alibi", [np.bool_(1), 1], True),
]

FUNCTIONS: dict[str, Any] = {
    "dense": (sdpa_torch.scaled_dot_product_attention, sdpa_torch.explain),
    "varlen": (sdpa_torch.varlen_attention, sdpa_torch.explain_varlen),
    "paged": (sdpa_torch.paged_attention, sdpa_torch.explain_paged),
}
OPERANDS: dict[str, dict[str, Any]] = {
    "dense": dict.fromkeys(("query", "key", "value"), torch.randn(2, 4, 5, 8)),
    "varlen": {
        **dict.fromkeys(("query", "key", "value"), torch.randn(5, 4, 8)),
        "cu_seq_q": ints(0, 2, 5),
        "cu_seq_k": ints(0, 2, 5),
        "max_q": 3,
        "max_k": 3,
    },
    "paged": {
        "query": torch.randn(2, 4, 5, 8),
        **dict.fromkeys(("key_pages", "value_pages"), torch.randn(6, 4, 2, 8)),
        "page_table": ints(0, 1, 2, 3).reshape(2, 2),
        "seq_lens_kv": ints(7, 8),
    },
}


def cases(*tables: Table) -> list[Any]:
    return [
        pytest.param(name, value, error, words, id=f"{name}-{i}-{j}")
        for i, (name, values, error, words) in enumerate(row for table in tables for row in table)
        for j, value in enumerate(values)
    ]


def refused(function: str, error: type[Exception], words: str, **change: Any) -> None:
    """The call and ``explain`` raise this error, whose text has all these words."""
    for call in FUNCTIONS[function]:
        with pytest.raises(error) as refusal:
            call(**OPERANDS[function] | change)
        for word in (WORDS.get(word, word) for word in words.split("; ")):
            assert word in str(refusal.value), (word, str(refusal.value))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["scale", "softcap", "window", "is_causal"])
@pytest.mark.parametrize("power", [400, 5000])
def test_long_numbers_are_cut(function: str, name: str, power: int) -> None:
    number = -(10**power)
    for call in FUNCTIONS[function]:
        with pytest.raises((TypeError, ValueError), match=f"^{name}") as refusal:
            call(**OPERANDS[function] | {name: (number, 0) if name == "window" else number})
        assert len(str(refusal.value)) < 120


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("name", "value", "error", "words"), cases(COMMON, WINDOW))
def test_of_all(function: str, name: str, value: Any, error: type[Exception], words: str) -> None:
    refused(function, error, f"{name}; {words}", **{name: value})


@pytest.mark.parametrize(("name", "value", "error", "words"), cases(DENSE))
def test_of_dense(name: str, value: Any, error: type[Exception], words: str) -> None:
    refused("dense", error, f"{name}; {words}", **{name: value})


@pytest.mark.parametrize(("name", "value", "error", "words"), cases(VARLEN))
def test_of_varlen(name: str, value: Any, error: type[Exception], words: str) -> None:
    refused("varlen", error, f"{name}; {words}", **{name: value})


@pytest.mark.parametrize(("name", "value", "error", "words"), cases(PAGED))
def test_of_paged(name: str, value: Any, error: type[Exception], words: str) -> None:
    refused("paged", error, f"{name}; {words}", **{name: value})


@pytest.mark.parametrize(("name", "value", "error", "words"), cases(SCORE_MOD_ARGS))
def test_of_score_mod(name: str, value: Any, error: type[Exception], words: str) -> None:
    def modified(graph: Any, score: Any, number: Any) -> Any:
        return score + number

    options = {"score_mod": modified, "score_mod_args": (value,)}
    refused("dense", error, f"{name}; {words}", **options)


def test_numbers_of_tensors_wait_for_no_device() -> None:
    for name in ("scale", "softcap", "dropout_p"):
        refused("dense", TypeError, f"{name} is a Tensor; number", **{name: torch.tensor(0.5)})
    refused("varlen", TypeError, "max_q is a Tensor", max_q=torch.tensor(3))
    refused("varlen", TypeError, "window[0] is a Tensor", window=(torch.tensor(3), 0))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("name", "values", "meaning"), NUMBERS)
def test_numbers_of_numpy_are_pythons(
    function: str, name: str, values: list[Any], meaning: Any
) -> None:
    call, explain = FUNCTIONS[function]
    for value in values:
        same = value.item() if meaning is None else meaning
        given, expected = (OPERANDS[function] | {name: one} for one in (value, same))
        assert torch.equal(call(**given), call(**expected))
        assert explain(**given).problem == explain(**expected).problem


@pytest.mark.parametrize("number", [np.int64(3), np.int32(3), np.uint8(3), np.array(3)])
def test_longest_lengths_of_numpy(number: Any) -> None:
    given = OPERANDS["varlen"]
    expected = sdpa_torch.varlen_attention(**given)
    named = {"max_q": number, "max_k": number}
    assert torch.equal(sdpa_torch.varlen_attention(**given | named), expected)
    layout = sdpa_torch.SequenceLayout(given["cu_seq_q"], given["cu_seq_k"], number, number)
    assert (type(layout.max_q), layout.max_q) == (int, 3)


@pytest.mark.parametrize("number", [np.float32(0.5), np.float16(0.5), np.array(0.5)])
def test_dropout_of_numpy(number: Any) -> None:
    outputs = []
    for dropout_p in (number, 0.5):
        torch.manual_seed(0)
        given = OPERANDS["dense"] | {"dropout_p": dropout_p}
        outputs.append(sdpa_torch.scaled_dot_product_attention(**given))
    assert torch.equal(*outputs)


def test_a_refused_call_draws_no_seed() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="window"):
        sdpa_torch.scaled_dot_product_attention(**OPERANDS["dense"], dropout_p=0.5, window=(0, -1))
    assert torch.equal(torch.get_rng_state(), before)


def closed_over(number: Any) -> Tensor:
    output: Tensor = sdpa_torch.scaled_dot_product_attention(
        **OPERANDS["dense"], score_mod=lambda graph, score: score * number
    )
    return output


def test_a_number_in_a_closure_counts_by_its_value() -> None:
    doubled = closed_over(2.0)
    for number in (np.float32(2), np.float16(2), np.float64(2), np.int64(2), 2):
        assert torch.equal(closed_over(number), doubled)
    assert not torch.equal(closed_over(np.float32(3)), doubled)


@pytest.mark.parametrize("array", [np.array(2.0), np.ones(5), floats(), floats(5), [2.0]])
def test_an_array_in_a_closure_is_an_argument(array: Any) -> None:
    with pytest.raises(TypeError, match=r"pass arrays and numbers .* in score_mod_args"):
        closed_over(array)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (torch.tanh, "torch.tanh takes no traced score; use graph.tanh"),
        (torch.nn.functional.relu, "torch.relu takes no traced score; use graph.relu"),
        (torch.erf, "torch.erf takes no traced score; graph has no erf"),
        (lambda score: torch.where(score > 0, score, 0.0), "torch.where .*; use graph.binary_sel"),
        (lambda score: score * floats(5), "mul: Tensor is no operand .* in score_mod_args"),
        (lambda score: floats(5) * score, "mul: Tensor is no operand .* in score_mod_args"),
    ],
)
def test_a_function_of_tensors_in_score_mod(function: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        sdpa_torch.scaled_dot_product_attention(
            **OPERANDS["dense"], score_mod=lambda graph, score: function(score)
        )


#: By function: an argument of lengths, or of where they are, and int64 values that int32 has not.
#: Cut to 32 bits they would be lengths that exist.
LONG = {
    "dense": ("seq_lens_kv", [2**32 + 1, 3], [5, 3]),
    "varlen": ("cu_seq_k", [0, 2, 2**32 + 3], [0, 2, 5]),
    "paged": ("seq_lens_kv", [2**32 + 1, -(2**32) + 3], [8, 0]),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_lengths_beyond_int32_are_long(function: str) -> None:
    name, given, meant = LONG[function]
    call = FUNCTIONS[function][0]
    found, expected = (
        call(**OPERANDS[function] | {name: torch.tensor(lengths)}) for lengths in (given, meant)
    )
    torch.testing.assert_close(found, expected)


def test_int32_lengths_are_taken_as_they_are() -> None:
    """No copy, and so no kernel, where there is nothing to convert."""
    lengths = ints(3, 5)
    assert lengths_of("seq_lens_kv", lengths, lengths, 2) is lengths
    converted = lengths_of("seq_lens_kv", torch.tensor([2**40, -(2**40)]), lengths, 2)
    assert converted.dtype == torch.int32
    assert converted.tolist() == [2**31 - 1, -(2**31)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_cudnn_on_a_cpu_says_what_to_do(function: str) -> None:
    call, explain = FUNCTIONS[function]
    with pytest.raises(NoBackendError) as refusal:
        call(**OPERANDS[function], backend="cudnn")
    advice = "move query, key and value to a CUDA device, or leave backend out"
    assert str(refusal.value).splitlines()[-1].startswith(f"To change: {advice};")
    assert advice in str(explain(**OPERANDS[function], backend="cudnn"))
    with sdpa_torch.backends("cudnn"), pytest.raises(NoBackendError) as refusal:
        call(**OPERANDS[function])
    advice = "move query, key and value to a CUDA device, or allow another backend"
    assert advice in str(refusal.value).splitlines()[-1]
    assert "CUDA device" not in str(explain(**OPERANDS[function], device="h200"))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_checks_take_symbolic_lengths() -> None:
    """Of torch.compile: what it cannot trace is an error with ``fullgraph``."""

    def attend(query: Tensor, bias: Tensor, sink: Tensor, lengths: Tensor, left: int) -> Tensor:
        output: Tensor = sdpa_torch.scaled_dot_product_attention(
            *(query, query, query, bias),
            window=(left, 0),
            sink=sink,
            alibi=sink,
            softcap=2.0,
            seq_lens_kv=lengths,
        )
        return output

    compiled = torch.compile(attend, backend="eager", fullgraph=True, dynamic=True)
    for batch, heads, tokens in ((2, 4, 5), (3, 6, 7)):
        query, bias = torch.randn(batch, heads, tokens, 8), torch.randn(tokens, tokens)
        given = (query, bias, torch.randn(heads), torch.full((batch,), 3), heads)
        torch.testing.assert_close(compiled(*given), attend(*given))
