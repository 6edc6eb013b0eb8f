"""What reports tell of a problem: all of its tensors, all of its features, all reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pytest

from sdpa_core import (
    Alignment,
    Answer,
    AttentionProblem,
    Band,
    Choice,
    DeviceSpec,
    Direction,
    DType,
    TensorSpec,
    Tier,
    Unsupported,
    Verdict,
)
from sdpa_core.cudnn import known_bad
from sdpa_core.cudnn.known_bad import KnownBad, Remedy
from sdpa_core.diagnostics import aligned, choice_lines, no_backend_message, problem_lines
from sdpa_core.logits import ScoreMod
from sdpa_core.paged import Paged
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed, packed_spec
from sdpa_core.words import HIDDEN, features, notes, summary, tensors

MakeProblem = Callable[..., AttentionProblem]
H200 = DeviceSpec.named("h200", cudnn_version=92801)
BF16 = DType.BFLOAT16

SPEC = TensorSpec.dense((2, 4, 256, 64), BF16)
TABLE = TensorSpec.dense((2, 8), DType.INT32)
SCORE_MOD = ScoreMod(expression=(), tensors=(TensorSpec.dense((1, 4, 1, 1), DType.FLOAT32),))  # type: ignore[arg-type]

#: Every field of a problem, with another value than its default.
OTHER: dict[str, object] = {
    "query": SPEC,
    "key": SPEC,
    "value": SPEC,
    "output": SPEC,
    "band": Band(7, 3, Alignment.BOTTOM_RIGHT),
    "bias": TensorSpec.dense((1, 1, 128, 128), DType.FLOAT32),
    "alibi": True,
    "alibi_slopes": TensorSpec.dense((1, 4, 1, 1), DType.FLOAT32),
    "softmax": Softmax.LEARNABLE,
    "softcap": 30.0,
    "score_mod": SCORE_MOD,
    "dropout_p": 0.25,
    "seq_lens_q": True,
    "seq_lens_kv": True,
    "packed_q": Packed(200),
    "packed_kv": Packed(200, gaps=True),
    "paged": Paged(TABLE, TABLE, 128),
    "training": True,
    "return_lse": True,
    "return_max_logit": True,
    "deterministic": True,
    "bias_grad": True,
    "sink_grad": True,
    "grad_output": SPEC,
}


def report(problem: AttentionProblem) -> str:
    return "\n".join(problem_lines(problem))


def test_every_field_is_tried_below() -> None:
    assert set(OTHER) == {field.name for field in fields(AttentionProblem)}


@pytest.mark.parametrize("name", OTHER)
def test_no_field_is_left_out(name: str, make_problem: MakeProblem) -> None:
    plain = make_problem(training=False)
    assert report(replace(plain, **{name: OTHER[name]})) != report(plain)


@dataclass(frozen=True, slots=True)
class Grown(AttentionProblem):
    """A problem with a field that nobody has words for yet."""

    cleverness: int = 0


def test_a_new_field_is_told_without_being_listed(make_problem: MakeProblem) -> None:
    plain = make_problem()
    grown = Grown(**{field.name: getattr(plain, field.name) for field in fields(plain)})
    assert "cleverness" not in report(grown)
    assert "cleverness  3" in report(replace(grown, cleverness=3))


def everything() -> AttentionProblem:
    query = packed_spec((200, 4, 64), (256, 64, 1), BF16, batch=2, max_tokens=128)
    return replace(
        AttentionProblem.of(
            query,
            SPEC,
            SPEC,
            bias=TensorSpec.dense((1, 4, 1, 256), BF16),
            alibi_slopes=TensorSpec.dense((1, 4, 1, 1), DType.FLOAT32),
            softmax=Softmax.LEARNABLE,
            score_mod=SCORE_MOD,
            dropout_p=0.5,
            packed_q=Packed(200, gaps=True),
        ),
        paged=Paged(TABLE, TABLE, 256),
        packed_kv=Packed(300, gaps=True),
        seq_lens_q=True,
    )


def test_every_input_has_a_row() -> None:
    problem = everything()
    told = [seen.name for seen in tensors(problem)]
    assert told == [role for role in problem.inputs if role not in HIDDEN] + ["output"]
    rows = [line.split()[0] for line in report(problem).splitlines()]
    assert set(told) <= set(rows)


def test_packed_and_paged_operands_look_as_the_caller_passes_them() -> None:
    seen = {seen.name: seen for seen in tensors(everything())}
    assert seen["query"].spec.shape == (200, 4, 64)
    assert seen["query"].spec.strides == (256, 64, 1)
    assert seen["query"].remark == "packed"
    assert seen["cu_seqlens_q"].spec.shape == (3,)
    pool = TensorSpec((16, 2, 32, 64), (4096, 64, 128, 1), BF16)
    problem = AttentionProblem.of(SPEC, pool, pool, paged=Paged(TABLE, TABLE, 250))
    seen = {seen.name: seen for seen in tensors(problem)}
    assert seen["key"].spec.shape == (16, 32, 2, 64)
    assert seen["key"].spec.strides == (4096, 128, 64, 1)
    assert seen["page_table_v"].spec == TABLE
    assert features(problem)["paged"] == "pages of 32 tokens, at most 250 tokens in a sequence"


def test_packed_sequences_in_words() -> None:
    told = features(everything())
    assert told["packed_q"] == (
        "2 sequences of at most 128 tokens, with gaps between them, in 200 rows"
    )


def test_a_misaligned_operand_shows(make_problem: MakeProblem) -> None:
    problem = make_problem()
    shifted = replace(problem, key=replace(problem.key, alignment=4))
    assert "address a multiple of 4 bytes" in report(shifted)


def test_columns_are_aligned() -> None:
    assert list(aligned([("a", "bcd", "e"), ("fgh", "i"), ("j", "k", "l", "m")])) == [
        "  a    bcd  e",
        "  fgh  i",
        "  j    k    l  m",
    ]


def test_one_line_for_logs(make_problem: MakeProblem) -> None:
    text = summary(make_problem(band=Band.causal()), Direction.BACKWARD)
    assert text.startswith("backward bfloat16 query[2, 4, 128, 64] key[")
    assert text.endswith("band=causal, top_left training=yes")
    assert "\n" not in summary(everything(), Direction.FORWARD)


# -------------------------------------------------------------------------------- refusals


def refused(*reasons: Unsupported) -> Answer:
    return Answer(Verdict.REFUSED, reasons, Tier.RULES)


REJECTED = (
    ("first", refused(Unsupported("x", 1, "2", "cast it"), Unsupported("y", 3, "4", "pad it"))),
    ("second", refused(Unsupported("z", 5, "6"))),
)


def test_a_report_has_a_block_for_each_backend_and_what_to_change_last(
    make_problem: MakeProblem,
) -> None:
    chosen = Answer(Verdict.SUPPORTED, (), Tier.PROBE, 2048)
    choice = Choice(Direction.FORWARD, "third", chosen, REJECTED)
    lines = list(choice_lines(make_problem(training=False), H200, [choice]))
    assert lines[-7:] == [
        "forward: third (supported by probe; workspace 2,048 bytes)",
        "  first: refused by rules",
        "    x = 1, needs 2",
        "    y = 3, needs 4",
        "    to change: cast it; pad it",
        "  second: refused by rules",
        "    z = 5, needs 6",
    ]


def test_the_error_ends_with_all_that_can_be_changed(make_problem: MakeProblem) -> None:
    choice = Choice(Direction.FORWARD, None, None, REJECTED)
    lines = no_backend_message(make_problem(), H200, [choice]).splitlines()
    assert lines[-7:] == [
        "forward:",
        "  first: refused by rules",
        "    x = 1, needs 2",
        "    y = 3, needs 4",
        "  second: refused by rules",
        "    z = 5, needs 6",
        "To change: cast it; pad it; the backend 'reference' runs any problem, slowly.",
    ]
    assert any(line.startswith("  query ") for line in lines)


# ----------------------------------------------------------------------------------- notes


def test_what_lowering_costs(make_problem: MakeProblem) -> None:
    plain = make_problem()
    assert notes(plain, H200) == ()
    mask = replace(plain, bias=TensorSpec.dense((1, 1, 128, 128), BF16))
    (told,) = notes(mask, H200)
    assert told == (
        "bias: where the caller gave a boolean mask, a bias of 0 and -inf is made of it, "
        "32,768 bytes each call; numbers are taken as they are"
    )
    learned = replace(mask, bias_grad=True)
    assert notes(learned, H200) == ()


def test_slack_is_cleared_in_copies_of_dense_operands(make_problem: MakeProblem) -> None:
    """Each is of 131,072 bytes."""
    saved = "slack_is_finite=True saves them"
    keys = (
        "key, value: rows past a sequence's length are zeroed in copies, "
        f"262,144 bytes each pass; {saved}"
    )
    queries = (
        "query, grad_output: rows past a sequence's length are zeroed in copies, "
        f"262,144 bytes in the backward pass; {saved}"
    )
    plain = make_problem()
    assert notes(replace(plain, seq_lens_kv=True), H200) == (keys,)
    both = replace(plain, seq_lens_q=True, seq_lens_kv=True)
    assert notes(both, H200) == (keys, queries)
    assert notes(both, H200, [Direction.FORWARD]) == (keys,)
    assert notes(replace(both, training=False), H200) == (keys,)


def test_packed_operands_and_pages_are_not_copied(make_problem: MakeProblem) -> None:
    plain = make_problem()
    gaps = Packed(200, gaps=True)
    assert notes(replace(plain, packed_q=gaps, packed_kv=gaps), H200) == ()
    beside = replace(plain, packed_q=gaps, seq_lens_kv=True)
    assert [note.partition(":")[0] for note in notes(beside, H200)] == ["key, value"]
    pool = TensorSpec((16, 4, 32, 64), (8192, 64, 256, 1), BF16)
    paged = AttentionProblem.of(
        plain.query, pool, pool, paged=Paged(TABLE, TABLE, 256), seq_lens_q=True, seq_lens_kv=True
    )
    assert notes(paged, H200) == ()


def test_one_query_with_a_sink_is_copied(make_problem: MakeProblem) -> None:
    problem = replace(make_problem(sq=1, training=False), softmax=Softmax.OFF_BY_ONE)
    assert any(note.startswith("query: copied") for note in notes(problem, H200))


def test_ways_round_faults_are_told_of_the_directions_that_are_run(
    make_problem: MakeProblem,
) -> None:
    half_tile = make_problem(skv=192)
    (told,) = notes(half_tile, H200)
    assert told.startswith("backward: cuDNN is given the full length of every sequence, because")
    assert notes(half_tile, H200, [Direction.FORWARD]) == ()
    assert notes(replace(half_tile, training=False), H200) == ()


def test_notes_tell_of_faults_that_the_graph_meets(make_problem: MakeProblem) -> None:
    """A sink makes two rows of a single query: keys are not split then, nor plans left out."""
    single = replace(make_problem(sq=1, training=False), deterministic=True, return_lse=True)
    assert "do not split the keys" in " ".join(notes(single, H200))
    assert "do not split the keys" not in " ".join(
        notes(replace(single, softmax=Softmax.LEARNABLE), H200)
    )


def test_every_remedy_has_words(make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    for remedy in set(Remedy) - {Remedy.REFUSE}:
        row = KnownBad("a fault", None, None, lambda *_: True, remedy, "source")
        monkeypatch.setattr(known_bad, "ROWS", (row,))
        told = notes(make_problem(), H200)
        assert [note.partition(":")[0] for note in told] == ["forward", "backward"]
        assert all(note.endswith("because of a fault: a fault") for note in told)


def test_sequences_without_keys_are_mended_before_925(make_problem: MakeProblem) -> None:
    problem = replace(make_problem(training=False), seq_lens_kv=True)
    for version, expected in ((92400, True), (92801, False)):
        told = " ".join(notes(problem, replace(H200, cudnn_version=version)))
        assert ("sequences without keys" in told) is expected


def test_a_report_tells_notes_only_where_cudnn_runs(make_problem: MakeProblem) -> None:
    problem = make_problem(skv=192)
    answer = Answer(Verdict.SUPPORTED, (), Tier.RULES)
    for backend, expected in (("cudnn", True), ("reference", False)):
        choice = Choice(Direction.BACKWARD, backend, answer, ())
        lines = list(choice_lines(problem, H200, [choice]))
        assert ("notes:" in lines) is expected
