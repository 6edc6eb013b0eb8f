"""Buckets of packed sequences, on every kind of device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdpa_core import AttentionProblem, Band, DeviceSpec, Direction, DType, TensorSpec
from sdpa_core.cudnn.builder import describe
from sdpa_core.cudnn.graph import Derived, GraphSpec, Rule
from sdpa_core.cudnn.memory import kept, memory_spec
from sdpa_core.fingerprint import fingerprint
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed, batch_bucket, has_buckets, packed_spec, token_bucket

H200 = DeviceSpec.named("h200", cudnn_version=91900)
NEWEST = DeviceSpec.named("h200", cudnn_version=92800)
BOTH = tuple(Direction)
HEADS, HEADS_KV, D, DV = 4, 2, 64, 32


def packed(
    tokens: int = 300,
    batch: int = 3,
    longest: int = 130,
    gaps: bool = False,
    interleaved: bool = False,
    **flags: object,
) -> AttentionProblem:
    """Grouped heads, unequal head dims; ``interleaved``: views of one ``[tokens, 3, H, D]``."""

    def spec(heads: int, head_dim: int) -> TensorSpec:
        row = 3 * heads * head_dim if interleaved else heads * head_dim
        shape, strides = (tokens, heads, head_dim), (row, head_dim, 1)
        return packed_spec(shape, strides, DType.BFLOAT16, batch=batch, max_tokens=longest)

    side = Packed(tokens, gaps)
    return AttentionProblem.of(
        spec(HEADS, D),
        spec(HEADS_KV, D),
        spec(HEADS_KV, DV),
        packed_q=side,
        packed_kv=side,
        training=True,
        **flags,  # type: ignore[arg-type]
    )


def sides(graph: GraphSpec) -> dict[str, tuple[int, int]]:
    """Declared batch and tokens of the operands that have them."""
    roles = ("query", "key", "value", "output")
    return {role: (graph.operand(role).shape[0], graph.operand(role).shape[2]) for role in roles}


def test_batch_buckets() -> None:
    counts = (1, 32, 33, 64, 65, 512, 513, 1024, 1025)
    assert [batch_bucket(n) for n in counts] == [32, 32, 64, 64, 128, 512, 1024, 1024, 1536]


def test_token_buckets() -> None:
    counts = (0, 1, 1024, 1025, 2048, 32768, 32769, 65536, 65537)
    assert [token_bucket(n) for n in counts] == [
        *(0, 1024, 1024, 2048, 2048),
        *(32768, 65536, 65536, 98304),
    ]


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("h200", 90600, True),
        ("h200", 90501, False),
        ("h200", None, True),
        ("b200", 91900, True),
        ("a100", 91900, False),
        ("rtx5090", 91900, False),
    ],
)
def test_devices_with_buckets(name: str, version: int | None, expected: bool) -> None:
    assert has_buckets(DeviceSpec.named(name, cudnn_version=version)) == expected


@pytest.mark.parametrize("direction", BOTH)
def test_buckets_are_declared(direction: Direction) -> None:
    graph = describe(packed(), H200, direction)
    assert set(sides(graph).values()) == {(32, 1024)}
    assert graph.operand("seq_len_q").shape == (32, 1, 1, 1)
    assert graph.operand("stats").shape == (32, HEADS, 1024, 1)


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize(
    "device",
    [
        DeviceSpec.named("h200", cudnn_version=90501),
        DeviceSpec.named("a100", cudnn_version=91900),
        DeviceSpec.named("rtx5090", cudnn_version=91900),
    ],
    ids=["before 9.6", "sm80", "sm120"],
)
def test_without_buckets_the_own_dimensions_are_declared(
    device: DeviceSpec, direction: Direction
) -> None:
    graph = describe(packed(), device, direction)
    assert set(sides(graph).values()) == {(3, 130)}
    stats = graph.operand("stats")
    assert (stats.shape, stats.ragged) == ((3, HEADS, 130, 1), None)


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("name", ["h200", "a100", "rtx5090"])
def test_rows_of_a_bucket_share_a_plan(name: str, direction: Direction) -> None:
    """Also of a single head, whose stride no address depends on."""
    device = DeviceSpec.named(name, cudnn_version=91900)

    def key(tokens: int) -> str:
        heads = (
            packed_spec((tokens, h, D), (h * D, D, 1), DType.BFLOAT16, batch=3, max_tokens=130)
            for h in (HEADS, 1, 1)
        )
        side = Packed(tokens)
        problem = AttentionProblem.of(*heads, packed_q=side, packed_kv=side, training=True)
        return fingerprint(problem, device, direction, "1.32.0")

    assert key(200) == key(300) != key(1300)


@pytest.mark.parametrize("direction", BOTH)
def test_a_padded_query_leaves_packed_keys_in_their_bucket(direction: Direction) -> None:
    """A sink makes two rows of a single query; the keys are declared as ever."""
    problem = packed()
    single = replace(
        problem,
        query=TensorSpec.dense((3, HEADS, 1, D), DType.BFLOAT16),
        output=TensorSpec.dense((3, HEADS, 1, DV), DType.BFLOAT16),
        packed_q=None,
        seq_lens_q=True,
        softmax=Softmax.LEARNABLE,
    )
    declared = sides(describe(single, H200, direction))
    assert declared["query"] == declared["output"] == (3, 2)
    assert declared["key"] == declared["value"] == (3, 1024)


@pytest.mark.parametrize(("name", "told"), [("h200", True), ("rtx5090", False)])
def test_only_sm12x_is_not_told_the_keys_in_all(name: str, told: bool) -> None:
    """With them its gradients are wrong (TransformerEngine issue 3333)."""
    device = DeviceSpec.named(name, cudnn_version=91900)
    options = dict(describe(packed(), device, Direction.BACKWARD).options)
    assert ("max_total_seq_len_kv" in options) == told
    assert "max_total_seq_len_q" in options


def test_offsets_count_elements() -> None:
    """Of the tensor that they belong to; equal ones are computed once."""
    graph = describe(packed(interleaved=True), H200, Direction.FORWARD)
    rows = {"query": 3 * HEADS * D, "key": 3 * HEADS_KV * D, "value": 3 * HEADS_KV * DV}
    rows |= {"output": HEADS * DV, "stats": HEADS}
    by_uid = {operand.uid: operand for operand in graph.operands}
    for role, elements in rows.items():
        ragged = graph.operand(role).ragged
        assert ragged is not None
        side = "kv" if role in ("key", "value") else "q"
        assert by_uid[ragged].derived == Derived(Rule.OFFSETS, f"cu_seqlens_{side}", elements)
        assert by_uid[ragged].dtype is DType.INT64
        assert by_uid[ragged].shape == (33, 1, 1, 1)
    shared = [graph.operand(role).ragged for role in ("key", "query")]
    dense = describe(packed(tokens=300), H200, Direction.BACKWARD)
    assert dense.operand("grad_query").ragged == dense.operand("query").ragged
    assert shared[0] != shared[1]


def test_gaps_move_the_offsets_and_not_the_lengths() -> None:
    graph = describe(packed(gaps=True), H200, Direction.FORWARD)
    sources = {o.role: o.derived.source for o in graph.operands if o.derived is not None}
    assert sources["seq_len_q"] == "cu_seqlens_q"
    assert sources["offsets_query"] == "cu_seqlens_q_padded"
    assert sources["offsets_key"] == "cu_seqlens_kv_padded"


def test_results_with_gaps_are_cleared() -> None:
    """cuDNN writes rows of sequences and nothing between or after them."""
    cleared = {
        operand.role
        for direction in BOTH
        for operand in describe(packed(), H200, direction).operands
        if operand.zero_fill
    }
    assert cleared == {"output", "grad_query", "grad_key", "grad_value"}


def test_newest_cudnn_takes_cumulative_lengths_in_the_forward_pass() -> None:
    """Its batch is not rounded: there are no more cumulative lengths than the caller's."""
    graph = describe(packed(gaps=True), NEWEST, Direction.FORWARD)
    assert set(sides(graph).values()) == {(3, 1024)}
    lengths = graph.operand("cu_seq_len_q")
    assert (lengths.shape, lengths.derived) == (
        (4, 1, 1, 1),
        Derived(Rule.LENGTHS, "cu_seqlens_q"),
    )
    query = graph.operand("query")
    assert query.ragged_unit == HEADS * D
    offsets = next(operand for operand in graph.operands if operand.uid == query.ragged)
    assert (offsets.dtype, offsets.derived) == (
        DType.INT32,
        Derived(Rule.LENGTHS, "cu_seqlens_q_padded"),
    )
    assert dict(graph.options)["implementation"] == "unified"
    for problem, direction in (
        (packed(), Direction.BACKWARD),
        (packed(dropout_p=0.1), Direction.FORWARD),
    ):
        assert not describe(problem, NEWEST, direction).has("cu_seq_len_q")


def test_deterministic_gradients_never_declare_token_buckets() -> None:
    """Their workspace is quadratic in the declared length (H200: 550 GB for a bucket of 65536)."""
    graph = describe(packed(deterministic=True), H200, Direction.BACKWARD)
    assert set(sides(graph).values()) == {(32, 130)}


def dense_queries(**flags: object) -> AttentionProblem:
    """Queries in ``[S, B, H, D]`` order beside packed keys."""
    batch, longest = 3, 7
    query = TensorSpec(
        (batch, HEADS, longest, D), (HEADS * D, D, batch * HEADS * D, 1), DType.BFLOAT16
    )
    both = packed()
    return AttentionProblem.of(
        query,
        both.key,
        both.value,
        packed_kv=Packed(300),
        training=True,
        **flags,  # type: ignore[arg-type]
    )


def test_a_dense_side_keeps_its_batch_and_strides() -> None:
    """No more is declared than is there; the packed side's tokens are still rounded up."""
    problem = dense_queries()
    for direction in BOTH:
        graph = describe(problem, H200, direction)
        query, output = graph.operand("query"), graph.operand("output")
        assert (query.shape, query.strides) == (problem.query.shape, problem.query.strides)
        assert output.spec == problem.output
        assert graph.operand("key").shape == (3, HEADS_KV, 1024, D)
    assert graph.operand("seq_len_q").derived == Derived(Rule.LENGTHS, "seq_lens_q")
    assert "seq_lens_q" in problem.inputs


def test_a_bias_for_each_sequence_keeps_the_batch() -> None:
    shared, own = (TensorSpec.dense((n, 1, 130, 130), DType.BFLOAT16) for n in (1, 3))
    batches = [
        describe(packed(bias=bias), H200, Direction.FORWARD).operand("query").shape[0]
        for bias in (shared, own)
    ]
    assert batches == [32, 3]


def test_memory_of_packed_operands_is_the_caller_s() -> None:
    problem = packed(interleaved=True)
    graph = describe(problem, H200, Direction.FORWARD)
    query = memory_spec(graph.operand("query"), problem)
    assert (query.shape, query.strides) == ((300, HEADS, D), (3 * HEADS * D, D, 1))
    output = memory_spec(graph.operand("output"), problem)
    assert (output.shape, output.strides) == ((300, HEADS, DV), (HEADS * DV, DV, 1))
    assert memory_spec(graph.operand("stats"), problem).shape == (300, HEADS, 1)
    assert kept(graph.operand("output"), problem) is None


def test_one_declared_token_per_sequence_keeps_the_stride_of_tokens() -> None:
    """The longest sequence has one token, but tokens follow each other (flash-attention 1537)."""
    problem = packed(tokens=3, longest=1)
    graph = describe(problem, DeviceSpec.named("a100", cudnn_version=91900), Direction.FORWARD)
    assert graph.operand("query").strides[2] == HEADS * D
    assert memory_spec(graph.operand("output"), problem).strides[0] == HEADS * DV


def test_bands_of_packed_sequences_keep_their_alignment() -> None:
    band = Band.causal(packed().band.alignment.BOTTOM_RIGHT)
    assert packed(band=band).band == band


def test_with_dropout_both_directions_declare_the_longest_sequence() -> None:
    """Which probabilities are kept depends on the declared length, see ``philox``."""
    problem = packed(dropout_p=0.1)
    lengths = {describe(problem, H200, d).operand("query").shape[2] for d in BOTH}
    assert lengths == {130}


@pytest.mark.parametrize("deterministic", [True, False])
def test_r52_one_query_per_sequence_is_declared_longer(deterministic: bool) -> None:
    """Of packed single queries only the first head of each group gets a log-sum-exp."""
    problem = packed(tokens=3, longest=1, deterministic=deterministic)
    for direction in BOTH:
        assert describe(problem, H200, direction).operand("query").shape[2] > 1


def test_interleaved_operands_are_dense_in_the_backward_pass() -> None:
    """cuDNN has one offset for an operand and its gradient, which is dense."""
    graph = describe(packed(interleaved=True), H200, Direction.BACKWARD)
    for role, heads, width in (("query", HEADS, D), ("key", HEADS_KV, D), ("value", HEADS_KV, DV)):
        operand, gradient = graph.operand(role), graph.operand(f"grad_{role}")
        assert operand.strides[2] == gradient.strides[2] == heads * width
        assert operand.ragged == gradient.ragged
