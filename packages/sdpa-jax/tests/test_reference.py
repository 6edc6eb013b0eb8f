"""Memory of the reference backend: it grows with the tokens, not with their square."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_core import AttentionProblem, Band
from sdpa_core.problem import Softmax
from sdpa_jax import dot_product_attention, reference
from sdpa_jax.convert import dense, specs

TOKENS = 4096
STRUCT = jax.ShapeDtypeStruct((1, TOKENS, 1, 8), jnp.float32)
BIAS = jax.ShapeDtypeStruct((1, 1, 1, TOKENS), jnp.float32)


def sizes(jaxpr: Any) -> Iterator[int]:
    for equation in jaxpr.eqns:
        yield from (variable.aval.size for variable in equation.outvars)
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            if hasattr(inner, "eqns"):
                yield from sizes(inner)


PROBLEM = AttentionProblem.of(
    *specs(STRUCT, STRUCT, STRUCT),
    band=Band.causal(),
    bias=dense(BIAS),
    softmax=Softmax.OFF_BY_ONE,
    softcap=2.0,
    dropout_p=0.5,
    seq_lens_q=True,
    seq_lens_kv=True,
    training=True,
    bias_grad=True,
)
SHAPES = {
    **dict.fromkeys(("query", "key", "value"), STRUCT),
    "bias": BIAS,
    **dict.fromkeys(("seq_lens_q", "seq_lens_kv"), jax.ShapeDtypeStruct((1,), jnp.int32)),
    **dict.fromkeys(("dropout_seed", "dropout_offset"), jax.ShapeDtypeStruct((2,), jnp.uint32)),
}
RESULTS = {
    "output": STRUCT,
    "stats": jax.ShapeDtypeStruct((1, 1, TOKENS), jnp.float32),
    "grad_output": STRUCT,
}


def forward(operands: Any) -> Any:
    return reference.forward(PROBLEM, (1.0,), operands)


def backward(operands: Any) -> Any:
    return reference.backward(PROBLEM, (1.0,), operands)


class TestMemory:
    @pytest.mark.parametrize(
        ("function", "operands"),
        [(forward, SHAPES), (backward, SHAPES | RESULTS)],
        ids=["forward", "backward"],
    )
    def test_no_matrix_of_all_pairs(self, function: Any, operands: Any) -> None:
        largest = max(sizes(jax.make_jaxpr(function)(operands).jaxpr))
        assert largest <= (reference.BLOCK + 16) * TOKENS  # dropout is decided in tiles of 16 rows

    def test_compiled(self) -> None:
        def loss(query: jax.Array) -> jax.Array:
            return dot_product_attention(query, query, query, implementation="xla").sum()

        compiled = jax.jit(jax.grad(loss)).lower(STRUCT).compile()
        pairs = TOKENS * TOKENS * 4
        assert compiled.memory_analysis().temp_size_in_bytes < pairs / 2


class TestBlocks:
    @pytest.mark.parametrize("tokens", [1, 255, 256, 257, 600])
    def test_any_number_of_rows(self, tokens: int) -> None:
        keys = jax.random.split(jax.random.key(0), 3)
        query, key, value = (
            jax.random.normal(k, (1, n, 2, 8))
            for k, n in zip(keys, (tokens, 300, 300), strict=True)
        )

        def loss(attention: Any) -> Any:
            return lambda *x: (attention(*x, is_causal=True) ** 2).sum()

        found = jax.value_and_grad(loss(dot_product_attention), (0, 1, 2))(query, key, value)
        expected = jax.value_and_grad(loss(jax.nn.dot_product_attention), (0, 1, 2))(
            query, key, value
        )
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
