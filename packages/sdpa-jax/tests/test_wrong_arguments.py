"""A wrong argument of any public function: the error names it and says what is expected.

``sdpa_torch`` has the same table.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sdpa_jax
from sdpa_core import NoBackendError

Table = list[tuple[str, list[Any], type[Exception], str]]

#: What the tables call by its kind.
WORDS = {
    "< 1": "[0, 1)",
    "an array": "a jax.Array",
    "expected an array": "expected a jax.Array",
    "expected a number": "expected a concrete number",
    "a number or an array": "a concrete number or an array",
    "(left, right), in tokens, or None": "a pair (left, right), in tokens, or None",
}

#: What the tables name as ``sdpa_torch`` does.
NAMES = {"backend": "implementation", "dropout_p": "dropout_rate"}
NAMES_OF_DENSE = NAMES | {
    "seq_lens_q": "query_seq_lengths",
    "seq_lens_kv": "key_value_seq_lengths",
    "window": "local_window_size",
    "return_lse": "return_residual",
}


def floats(*shape: int) -> jax.Array:
    return jnp.ones(shape)


def integers(*shape: int) -> jax.Array:
    return jnp.ones(shape, jnp.int32)


def bools(*shape: int) -> jax.Array:
    return jnp.ones(shape, bool)


def random(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(0), shape)


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

#: Windows as jax.nn has them: one number counts on both sides.
LOCAL_WINDOW: Table = [
    ("local_window_size", ["3", 1.5, True, np.array([3, 0])], TypeError, "is a; a pair of such"),
    ("local_window_size", [(1, 2, 3)], TypeError, "a pair (left, right), in tokens, or None"),
    ("local_window_size", [(True, 0), (np.bool_(1), 0)], TypeError, "[0] is a bool; an int"),
    ("local_window_size", [(0, np.float32(1)), (0, "1")], TypeError, "[1] is a; an int, in tokens"),
    ("local_window_size", [-1, np.int64(-1)], ValueError, "= -1; at least 0"),
    ("local_window_size", [(0, -1)], ValueError, "[1] = -1; at least 0"),
]

FUNCTIONS: dict[str, Any] = {
    "dense": (sdpa_jax.dot_product_attention, sdpa_jax.explain),
    "varlen": (sdpa_jax.varlen_attention, sdpa_jax.explain_varlen),
    "paged": (sdpa_jax.paged_attention, sdpa_jax.explain_paged),
}
BOUNDS = jnp.array([0, 2, 5])
OPERANDS: dict[str, dict[str, Any]] = {
    "dense": dict.fromkeys(("query", "key", "value"), random(2, 5, 4, 8)),
    "varlen": {
        **dict.fromkeys(("query", "key", "value"), random(5, 4, 8)),
        "cu_seq_q": BOUNDS,
        "cu_seq_k": BOUNDS,
        "max_q": 3,
        "max_k": 3,
    },
    "paged": {
        "query": random(2, 5, 4, 8),
        **dict.fromkeys(("key_pages", "value_pages"), random(6, 4, 2, 8)),
        "page_table": jnp.array([[0, 1], [2, 3]]),
        "seq_lens_kv": jnp.array([7, 8]),
    },
}


def own(function: str, name: str) -> str:
    """What JAX calls an argument."""
    return (NAMES_OF_DENSE if function == "dense" else NAMES).get(name, name)


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
@pytest.mark.parametrize(("name", "value", "error", "words"), cases(COMMON))
def test_of_all(function: str, name: str, value: Any, error: type[Exception], words: str) -> None:
    name = own(function, name)
    refused(function, error, f"{name}; {words}", **{name: value})


@pytest.mark.parametrize("function", ["varlen", "paged"])
@pytest.mark.parametrize(("name", "value", "error", "words"), cases(WINDOW))
def test_of_windows(
    function: str, name: str, value: Any, error: type[Exception], words: str
) -> None:
    refused(function, error, f"{name}; {words}", **{name: value})


@pytest.mark.parametrize(("name", "value", "error", "words"), cases(DENSE, LOCAL_WINDOW))
def test_of_dense(name: str, value: Any, error: type[Exception], words: str) -> None:
    name = own("dense", name)
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


@pytest.mark.parametrize("length", [3, np.int32(3), np.int64(3), np.array(3), jnp.int32(3)])
def test_one_length_needs_operands_without_a_batch(length: Any) -> None:
    single = {name: x[0] for name, x in OPERANDS["dense"].items()}
    found = sdpa_jax.dot_product_attention(**single, key_value_seq_lengths=length)
    keys = {name: single[name][:3] for name in ("key", "value")}
    expected = sdpa_jax.dot_product_attention(**single | keys)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(
        (TypeError, ValueError), match=r"^key_value_seq_lengths .*\[2\], one of each"
    ):
        sdpa_jax.dot_product_attention(**OPERANDS["dense"], key_value_seq_lengths=length)


@pytest.mark.parametrize("length", [True, 3.0, np.bool_(True), np.float32(3), np.uint32(3), [3]])
def test_one_length_is_an_integer(length: Any) -> None:
    single = {name: x[0] for name, x in OPERANDS["dense"].items()}
    with pytest.raises(TypeError, match=r"^key_value_seq_lengths .*expected .*int32 or int64"):
        sdpa_jax.dot_product_attention(**single, key_value_seq_lengths=length)


@pytest.mark.parametrize("length", [2**32 + 1, 2**70, np.int64(2**32 + 1)])
def test_one_length_beyond_int32_is_long(length: Any) -> None:
    single = {name: x[0] for name, x in OPERANDS["dense"].items()}
    found = sdpa_jax.dot_product_attention(**single, key_value_seq_lengths=length)
    np.testing.assert_array_equal(
        found, sdpa_jax.dot_product_attention(**single, key_value_seq_lengths=jnp.int32(5))
    )


#: By function: an argument of lengths, or of where they are, and int64 values that int32 has not.
#: Cut to 32 bits they would be lengths that exist.
LONG = {
    "dense": ("key_value_seq_lengths", [2**32 + 1, 3], [5, 3]),
    "varlen": ("cu_seq_k", [0, 2, 2**32 + 3], [0, 2, 5]),
    "paged": ("seq_lens_kv", [2**32 + 1, -(2**32) + 3], [8, 0]),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("x64", [False, True])
def test_lengths_beyond_int32_are_long(function: str, x64: bool) -> None:
    name, given, meant = LONG[function]
    call = FUNCTIONS[function][0]
    with jax.enable_x64(x64):
        lengths = np.array(given)
        expected = call(**OPERANDS[function] | {name: np.array(meant, np.int32)})
        for array in (lengths, jnp.asarray(lengths)) if x64 else (lengths,):
            found = call(**OPERANDS[function] | {name: array})
            np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["scale", "softcap", "is_causal"])
@pytest.mark.parametrize("power", [400, 5000])
def test_long_numbers_are_cut(function: str, name: str, power: int) -> None:
    for call in FUNCTIONS[function]:
        with pytest.raises((TypeError, ValueError), match=f"^{name}") as refusal:
            call(**OPERANDS[function] | {name: -(10**power)})
        assert len(str(refusal.value)) < 120


@pytest.mark.parametrize("power", [400, 5000])
def test_windows_of_long_numbers_are_cut(power: int) -> None:
    for window in ((-(10**power), 0), (10**power, 0, 0)):
        with pytest.raises((TypeError, ValueError), match=r"^window") as refusal:
            sdpa_jax.varlen_attention(**OPERANDS["varlen"], window=window)
        assert len(str(refusal.value)) < 130


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("name", "values", "meaning"), NUMBERS)
def test_numbers_of_numpy_are_pythons(
    function: str, name: str, values: list[Any], meaning: Any
) -> None:
    name = own(function, name)
    call, explain = FUNCTIONS[function]
    for value in values:
        same = value.item() if meaning is None else meaning
        given, expected = (OPERANDS[function] | {name: one} for one in (value, same))
        np.testing.assert_array_equal(call(**given), call(**expected))
        assert explain(**given).problem == explain(**expected).problem


@pytest.mark.parametrize("number", [np.int64(3), np.int32(3), np.uint8(3), np.array(3)])
def test_longest_lengths_of_numpy(number: Any) -> None:
    given = OPERANDS["varlen"]
    expected = sdpa_jax.varlen_attention(**given)
    named = {"max_q": number, "max_k": number}
    np.testing.assert_array_equal(sdpa_jax.varlen_attention(**given | named), expected)


@pytest.mark.parametrize("number", [np.float32(0.5), np.float16(0.5), np.array(0.5)])
def test_dropout_of_numpy(number: Any) -> None:
    given = OPERANDS["dense"] | {"dropout_key": jax.random.key(0)}
    np.testing.assert_array_equal(
        sdpa_jax.dot_product_attention(**given, dropout_rate=number),
        sdpa_jax.dot_product_attention(**given, dropout_rate=0.5),
    )


def closed_over(number: Any) -> jax.Array:
    output: jax.Array = sdpa_jax.dot_product_attention(
        **OPERANDS["dense"], score_mod=lambda graph, score: score * number
    )
    return output


def test_a_number_in_a_closure_counts_by_its_value() -> None:
    doubled = closed_over(2.0)
    bfloat16 = np.dtype(jnp.bfloat16).type
    for number in (np.float32(2), np.float16(2), bfloat16(2), np.float64(2), np.int64(2), 2):
        np.testing.assert_array_equal(closed_over(number), doubled)
    assert (closed_over(np.float32(3)) != doubled).any()


@pytest.mark.parametrize("array", [np.array(2.0), np.ones(5), floats(), floats(5), [2.0]])
def test_an_array_in_a_closure_is_an_argument(array: Any) -> None:
    with pytest.raises(TypeError, match=r"pass arrays and numbers .* in score_mod_args"):
        closed_over(array)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (jnp.tanh, ValueError, "score_mod: .*graph.tanh for jax.numpy.tanh"),
        (lambda s: jnp.where(s > 0, s, 0.0), ValueError, "score_mod: .*methods of graph"),
        (lambda s: floats(5) * s, ValueError, "score_mod: .*in score_mod_args"),
        (lambda s: s * floats(5), TypeError, "no operand of score_mod; .*in score_mod_args"),
    ],
)
def test_a_function_of_arrays_in_score_mod(
    function: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        sdpa_jax.dot_product_attention(
            **OPERANDS["dense"], score_mod=lambda graph, score: function(score)
        )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_cudnn_on_a_cpu_says_what_to_do(function: str) -> None:
    call, explain = FUNCTIONS[function]
    with pytest.raises(NoBackendError) as refusal:
        call(**OPERANDS[function], implementation="cudnn")
    advice = "run it on a CUDA device (jax.device_put), or leave implementation out"
    assert str(refusal.value).splitlines()[-1].startswith(f"To change: {advice};")
    assert advice in str(explain(**OPERANDS[function], implementation="cudnn"))
    with sdpa_jax.backends("cudnn"), pytest.raises(NoBackendError) as refusal:
        call(**OPERANDS[function])
    advice = "run it on a CUDA device (jax.device_put), or allow another backend"
    assert advice in str(refusal.value).splitlines()[-1]
    assert "CUDA device" not in str(explain(**OPERANDS[function], device="h200"))
