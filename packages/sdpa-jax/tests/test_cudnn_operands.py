"""What a plan is handed: lengths, offsets of 64 bits, padded queries; and its results."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sdpa_core import DeviceSpec, Direction, Plan
from sdpa_core.testing.fake_cudnn import FakeCudnn
from sdpa_jax import cudnn, explain, explain_varlen, words
from sdpa_jax.testing import FakeRuntime

N, K, H = 4, 2, 8


class Recording(FakeRuntime):
    """Keeps what a plan is handed; every result is 7 everywhere."""

    def __init__(self) -> None:
        super().__init__(FakeCudnn())
        self.handed: dict[str, Any] = {}

    def execute(self, plan: Plan, inputs: Any, results: Any, scalars: Any) -> list[jax.Array]:
        operands = (*plan.inputs, *plan.scalars)
        for operand, given in zip(operands, (*inputs, *scalars), strict=True):
            self.handed[operand.role] = given
        return [jnp.full(result.shape, 7, result.dtype) for result in results]


def launched(
    decision: Any, arrays: dict[str, jax.Array], *, version: int = 91900, **options: Any
) -> tuple[dict[str, Any], dict[str, jax.Array]]:
    """What the plan of a decision's problem is handed, and the results after that."""
    runtime = Recording()
    launch = cudnn.Launch(
        problem=replace(decision.problem, training=False, return_lse=True),
        spec=DeviceSpec.named("h200", cudnn_version=version),
        direction=Direction.FORWARD,
        runtime=runtime,
        scalars=(0.5,),
        slack_is_finite=options.get("slack_is_finite", False),
    )
    return runtime.handed, launch.run(arrays)


def value_of(pairs: jax.Array) -> np.ndarray:
    """Pairs of words as the 64-bit integers that a kernel reads."""
    return np.ascontiguousarray(pairs).view(np.int64)[..., 0]


class TestWords:
    @pytest.mark.parametrize("x64", [False, True])
    @pytest.mark.parametrize("factor", [1, 2**14, 128 * 128, 2**31 - 1, 2**32 - 1])
    def test_products_beyond_32_bits(self, factor: int, x64: bool) -> None:
        values = np.array([0, 1, 139_999, 2**20 + 7, 2**31 - 1], np.int32)
        with jax.enable_x64(x64):
            low, high = words.product(factor, jnp.asarray(values))
        # Kernels read the same bytes as signed; beyond 2**63 they would be negative.
        expected = [int(v) * factor for v in values]
        assert low.dtype == high.dtype == jnp.uint32
        found = np.asarray(low, np.uint64) + (np.asarray(high, np.uint64) << np.uint64(32))
        assert found.tolist() == expected

    @pytest.mark.parametrize("value", [0, 1, -1, 2**40 + 5, -(2**63), 2**63 - 1])
    def test_constants(self, value: int) -> None:
        assert value_of(words.of_int(value)) == value


def packed(rows: int = 24) -> tuple[Any, dict[str, jax.Array]]:
    """Three sequences with gaps."""
    arrays = {
        "query": jnp.ones((rows, N, H), jnp.bfloat16),
        "key": jnp.ones((rows, K, H), jnp.bfloat16),
        "value": jnp.ones((rows, K, H), jnp.bfloat16),
        "cu_seqlens_q": jnp.array([0, 3, 3, 8], jnp.int32),
        "cu_seqlens_kv": jnp.array([0, 4, 6, 12], jnp.int32),
        "cu_seqlens_q_padded": jnp.array([0, 4, 4, 12], jnp.int32),
    }
    decision = explain_varlen(
        *(arrays[x] for x in ("query", "key", "value", "cu_seqlens_q", "cu_seqlens_kv")),
        5,
        6,
        cu_seq_q_padded=arrays["cu_seqlens_q_padded"],
        device="h200",
    )
    return decision, arrays


class TestPacked:
    @pytest.mark.parametrize("x64", [False, True])
    def test_lengths_and_offsets_fill_the_bucket(self, x64: bool) -> None:
        with jax.enable_x64(x64):
            handed, _ = launched(*packed())
        assert handed["seq_len_q"].reshape(-1)[:4].tolist() == [3, 0, 5, 0]
        assert handed["seq_len_kv"].reshape(-1)[:4].tolist() == [4, 2, 6, 0]
        assert handed["seq_len_q"].shape == (32, 1, 1, 1)
        offsets = value_of(handed["offsets_query"]).reshape(-1)
        assert offsets.tolist() == [0, 4 * N * H, 4 * N * H, *[12 * N * H] * 30]
        assert value_of(handed["offsets_key"]).reshape(-1)[3] == 12 * K * H

    def test_results_of_no_sequence(self) -> None:
        _, results = launched(*packed())
        gaps = np.array([3, *range(9, 24)])
        assert results["stats"].shape == (24, N)
        assert (results["stats"][gaps] == -jnp.inf).all()
        assert (results["stats"][:3] == 7).all()

    def test_rows_of_no_sequence_are_handed_as_they_are(self) -> None:
        decision, arrays = packed()
        spoiled = arrays | {"key": arrays["key"].at[12:].set(jnp.nan)}
        handed, _ = launched(decision, spoiled)
        assert handed["key"] is spoiled["key"]


def dense(**options: Any) -> tuple[Any, dict[str, jax.Array]]:
    tokens = options.pop("tokens", 6)
    arrays = {
        "query": jnp.ones((2, tokens, N, H), jnp.bfloat16),
        "key": jnp.ones((2, 6, K, H), jnp.bfloat16),
        "value": jnp.ones((2, 6, K, H), jnp.bfloat16),
    }
    further = {"sink": "sink", "key_value_seq_lengths": "seq_lens_kv", "bias": "bias"}
    arrays |= {role: options[name] for name, role in further.items() if name in options}
    operands = [arrays[x] for x in ("query", "key", "value")]
    return explain(*operands, device="h200", **options), arrays


class TestDense:
    def test_a_single_query_beside_a_sink_gets_a_second_row(self) -> None:
        handed, results = launched(*dense(tokens=1, sink=jnp.ones(N)))
        assert handed["query"].shape == (2, N, 2, H)
        assert (handed["query"][:, :, 1] == 0).all()
        assert handed["sink"].shape == (1, N, 1, 1)
        assert results["output"].shape == (2, 1, N, H)
        assert results["stats"].shape == (2, N, 1)

    def test_a_row_of_bias_is_not_copied(self) -> None:
        handed, _ = launched(*dense(bias=jnp.ones((1, N, 1, 6), jnp.bfloat16)))
        assert handed["bias"].shape == (1, N, 1, 6)

    @pytest.mark.parametrize(("version", "is_fixed"), [(91900, True), (92600, False)])
    def test_sequences_without_keys(self, version: int, is_fixed: bool) -> None:
        given = dense(key_value_seq_lengths=jnp.array([0, 6], jnp.int32))
        _, results = launched(*given, version=version)
        assert (results["output"][0] == (0 if is_fixed else 7)).all()
        assert (results["stats"][0] == (-jnp.inf if is_fixed else 7)).all()
        assert (results["output"][1] == 7).all()

    def test_sequences_without_keys_keep_the_sink(self) -> None:
        lengths, sink = jnp.array([0, 6], jnp.int32), jnp.arange(N) / 2
        _, results = launched(*dense(key_value_seq_lengths=lengths, sink=sink))
        np.testing.assert_array_equal(results["stats"][0], jnp.broadcast_to(sink[:, None], (N, 6)))

    def test_slack_is_cleared_in_a_copy(self) -> None:
        lengths = jnp.array([4, 6], jnp.int32)
        decision, arrays = dense(key_value_seq_lengths=lengths)
        spoiled = arrays | {"key": arrays["key"].at[0, 4:].set(jnp.nan)}
        handed, _ = launched(decision, spoiled)
        key = handed["key"].reshape(spoiled["key"].shape)
        assert (key[0, 4:] == 0).all()
        assert (key[0, :4] == 1).all()
        assert jnp.isnan(spoiled["key"][0, 4:]).all()
        handed, _ = launched(decision, spoiled, slack_is_finite=True)
        assert jnp.isnan(handed["key"].reshape(spoiled["key"].shape)[0, 4:]).all()

    def test_the_scale_is_a_number(self) -> None:
        assert launched(*dense())[0]["scale"] == 0.5
