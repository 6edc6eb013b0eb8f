"""The rules agree with cuDNN on the problems that differ most, and the support matrix's page.

``nox -s support_matrix`` asks about all problems, for pairs of versions; here the installed pair
is asked about some.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from support_matrix import page
from support_matrix.answers import Answers, Versions, read, write
from support_matrix.problems import PROBLEMS, TOPICS
from support_matrix.verdicts import DEVICES, Verdict, ask_all, directions, questions, reasons_of

from sdpa_core import DeviceSpec, Direction
from sdpa_core.cudnn import rules

PAGE = Path(__file__).resolve().parents[1] / "docs" / "support-matrix.md"
FORWARD, BACKWARD = Direction

#: One of each kind of graph, and what only some architectures or versions have.
REDUCED = (
    "layout sbhd",
    "17 and 333 tokens",
    "one token",
    "head_dim 12",
    "head_dim 256, dropout",
    "head_dim 512",
    "head_dim 128, value 192",
    "two-sided window, more queries",
    "lengths, window, bottom-right",
    "bias [1, h, s, t] with gradient",
    "bias float32 with gradient",
    "bias, lengths, bottom-right",
    "ALiBi, two-sided window",
    "sink, window",
    "dropout, bias with gradient",
    "packed with gaps",
    "dense queries, packed keys",
    "packed, bias with gradient",
    "packed, off by one, causal",
    "pages, one query, window",
    "pages, packed queries, bottom-right",
    "one query, sink, lengths",
    "deterministic, packed",
    "deterministic, dropout",
    "softcap, lengths",
    "softcap, pages",
    "slopes [b, h], causal",
    "score_mod with a tensor",
    "max_logit, log-sum-exp, packed",
)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for verdict in ask_all(list(questions(REDUCED))):
        found.setdefault(verdict.name, []).append(verdict)
    return found


@pytest.mark.parametrize("name", REDUCED)
def test_rules_and_cudnn_agree(name: str, verdicts: dict[str, list[Verdict]]) -> None:
    assert len(verdicts[name]) == len(DEVICES) * len(directions(PROBLEMS[name]))
    assert [str(verdict) for verdict in verdicts[name] if not verdict.agree] == []


def test_both_answers_are_among_them(verdicts: dict[str, list[Verdict]]) -> None:
    answers = Counter(not verdict.ours for of_one in verdicts.values() for verdict in of_one)
    assert answers[True] > 50
    assert answers[False] > 20


# ---------------------------------------------------------------------------------- problems


def test_every_problem_is_another_one() -> None:
    assert len(PROBLEMS) == sum(len(topic) for topic in TOPICS.values()) >= 120
    counted = Counter(PROBLEMS.values())
    assert [name for name, problem in PROBLEMS.items() if counted[problem] > 1] == []


#: Rules that no problem of the list can meet with versions that can be asked; ``memory`` is about
#: addresses, which cuDNN does not see when it plans.
OUT_OF_REACH = {"version", "dtype", "bias", "memory", "packed", "packed_keys", "sink"}


@pytest.mark.parametrize("rule", [rule.__name__ for rule in rules.RULES])
def test_every_rule_is_met(rule: str) -> None:
    by_name = next(one for one in rules.RULES if one.__name__ == rule)
    devices = [
        DeviceSpec.named(name, cudnn_version=version)
        for name in DEVICES
        for version in (91900, 92801)
    ]
    met = any(
        any(by_name(problem.for_direction(direction), device, direction))
        for problem in PROBLEMS.values()
        for direction in directions(problem)
        for device in devices
    )
    assert met == (rule not in OUT_OF_REACH)


# ----------------------------------------------------------------------------------- verdicts

VERDICT = Verdict("bfloat16", "h200", FORWARD, (), None)


@pytest.mark.parametrize(
    ("ours", "words", "faults", "agree"),
    [
        ((), None, (), True),
        (("a: b",), "no engine", (), True),
        ((), "no engine", (), False),
        (("a: b",), None, (), False),
        (("a: b",), None, ("a fault",), True),
    ],
)
def test_when_both_agree(
    ours: tuple[str, ...], words: str | None, faults: tuple[str, ...], agree: bool
) -> None:
    assert replace(VERDICT, ours=ours, words=words, faults=faults).agree == agree


def test_answers_survive_their_file(tmp_path: Path) -> None:
    versions = Versions(91900, "1.28.0")
    told = [VERDICT, replace(VERDICT, direction=BACKWARD, ours=("a: b",), words="no engine")]
    assert list(write(tmp_path / "answers", versions, told)) == told
    assert read(tmp_path / "answers") == Answers(versions, tuple(told))


def test_a_disagreement_is_on_the_page() -> None:
    wrong = replace(VERDICT, words="no engine")
    text = page.text([Answers(Versions(91900, "1.28.0"), (wrong,))])
    assert "**The rules and cuDNN disagree here:**" in text
    assert str(wrong) in text


def test_a_frontend_that_decides_is_on_the_page() -> None:
    refused = replace(VERDICT, words="no", ours=("a: b",), faults=("f",))
    built = replace(refused, words=None)
    answers = [
        Answers(Versions(91900, frontend), (verdict,))
        for frontend, verdict in (("1.28.0", built), ("1.32.0", refused))
    ]
    assert "- bfloat16, cuDNN 9.19.0: 1.28.0 builds, 1.32.0 refuses" in page.text(answers)


# ----------------------------------------------------------------------------- the page itself


def asked_versions(text: str) -> list[Versions]:
    found = re.findall(r"cuDNN (\d+)\.(\d+)\.(\d+), frontend ([\d.]+\d)", text)
    return [Versions(int(a) * 10000 + int(b) * 100 + int(c), fe) for a, b, c, fe in found]


def by_rules(versions: Versions) -> Answers:
    """What the rules say of every problem, as if cuDNN agreed."""
    found = []
    for name, device, direction in questions():
        spec = DeviceSpec.named(device, cudnn_version=versions.cudnn)
        ours = reasons_of(PROBLEMS[name], spec, direction)
        found.append(Verdict(name, device, direction, ours, "refused" if ours else None))
    return Answers(versions, tuple(found))


def test_the_page_says_what_the_rules_say() -> None:
    text = PAGE.read_text(encoding="utf-8")
    versions = asked_versions(text)
    assert {one.frontend for one in versions} == {"1.28.0", "1.32.0"}
    assert len({one.cudnn for one in versions}) >= 2
    assert "disagree here" not in text
    expected = page.text([by_rules(one) for one in versions])
    tables = expected[expected.index("\n## ") : expected.index("\n## Faults of cuDNN")]
    assert tables in text, "run: nox -s support_matrix"
