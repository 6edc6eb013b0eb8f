from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from sdpa_core import (
    Answer,
    AttentionProblem,
    Band,
    DeviceSpec,
    Direction,
    NoBackendError,
    SlowAttentionWarning,
    Tier,
    Unsupported,
    Verdict,
    backends,
    decide,
    registry,
    require,
)
from sdpa_core.backend import Backend, ReferenceBackend
from sdpa_core.config import settings
from sdpa_core.diagnostics import warn_if_slow
from sdpa_core.policy import candidates

MakeProblem = Callable[..., AttentionProblem]
H200 = DeviceSpec.named("h200", cudnn_version=91900)
CPU = DeviceSpec.cpu()


@dataclass
class Stub:
    """A backend that refuses some directions by rule or by probe, and keeps who asked."""

    name: str
    refuses: tuple[Direction, ...] = ()
    declines: tuple[Direction, ...] = ()
    workspace: int = 0
    rules_suffice: bool = False
    probed: list[Direction] = field(default_factory=list)

    def unsupported_reasons(
        self, problem: AttentionProblem, device: DeviceSpec, direction: Direction
    ) -> tuple[Unsupported, ...]:
        if direction not in self.refuses:
            return ()
        return (
            Unsupported(f"{self.name} rule one", 1, "2", f"change {self.name}"),
            Unsupported(f"{self.name} rule two", 3, "4"),
        )

    def probe(self, problem: AttentionProblem, device: DeviceSpec, direction: Direction) -> Answer:
        self.probed.append(direction)
        if direction in self.declines:
            reason = Unsupported("library", "its words", "a supported graph")
            return Answer(Verdict.REFUSED, (reason,), Tier.PROBE)
        return Answer(Verdict.SUPPORTED, (), Tier.PROBE, self.workspace)


def known(*stubs: Stub) -> dict[str, Backend]:
    return {**{stub.name: stub for stub in stubs}, "reference": ReferenceBackend()}


@pytest.fixture(autouse=True)
def fresh_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SDPA_BACKENDS", "SDPA_FALLBACK", "SDPA_WORKSPACE_SHARE"):
        monkeypatch.delenv(name, raising=False)
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_the_first_that_supports_it_runs_it(make_problem: MakeProblem) -> None:
    decision = decide(make_problem(), H200, known=known(Stub("a", tuple(Direction)), Stub("b")))
    assert decision.forward.backend == "b"
    assert decision.backward is not None
    assert decision.backward.backend == "b"
    (name, answer) = decision.forward.rejected[0]
    assert name == "a"
    assert [reason.what for reason in answer.reasons] == ["a rule one", "a rule two"]


def test_directions_are_chosen_separately(make_problem: MakeProblem) -> None:
    first = Stub("a", refuses=(Direction.BACKWARD,))
    decision = decide(make_problem(), H200, known=known(first, Stub("b")))
    assert [choice.backend for choice in decision.choices] == ["a", "b"]


def test_inference_asks_for_no_backward(make_problem: MakeProblem) -> None:
    stub = Stub("a")
    decision = decide(make_problem(training=False), H200, known=known(stub))
    assert decision.backward is None
    assert stub.probed == [Direction.FORWARD]


def test_the_library_has_the_last_word(make_problem: MakeProblem) -> None:
    decision = decide(make_problem(), H200, known=known(Stub("a", declines=tuple(Direction))))
    assert decision.forward.backend == "reference"
    assert decision.forward.rejected[0][1].tier is Tier.PROBE


def test_without_a_probe_nobody_is_promised_anything(make_problem: MakeProblem) -> None:
    stub = Stub("a", declines=tuple(Direction))
    decision = decide(make_problem(), H200, known=known(stub), probe=False)
    assert stub.probed == []
    assert decision.forward.answer is not None
    assert decision.forward.answer.verdict is Verdict.NOT_ASKED
    assert "the library was not asked" in str(decision)
    only = decide(make_problem(), CPU, known=known(), probe=False)
    assert only.forward.answer is not None
    assert only.forward.answer.verdict is Verdict.SUPPORTED


def test_a_named_backend_never_falls_back(make_problem: MakeProblem) -> None:
    decision = decide(
        make_problem(), H200, backend="a", known=known(Stub("a", (Direction.BACKWARD,)), Stub("b"))
    )
    assert decision.forward.backend == "a"
    assert decision.backward is not None
    assert decision.backward.backend is None
    with pytest.raises(NoBackendError) as error:
        require(decision)
    text = str(error.value)
    assert "backward:" in text
    assert "forward:" not in text
    for part in ("a rule one = 1, needs 2", "a rule two = 3, needs 4", "query   [2, 4, 128, 64]"):
        assert part in text
    assert text.endswith("To change: change a; the backend 'reference' runs any problem, slowly.")


def test_context_and_environment(
    make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = known(Stub("a"), Stub("b"))
    with backends("b", "a"):
        assert candidates(H200, None, table) == ("b", "a")
        assert candidates(H200, "a", table) == ("a",)
    assert candidates(H200, None, table) == ("a", "b", "reference")
    monkeypatch.setenv("SDPA_BACKENDS", "b")
    settings.cache_clear()
    assert candidates(H200, None, table) == ("b",)


def test_an_unknown_name_is_a_mistake(make_problem: MakeProblem) -> None:
    with pytest.raises(ValueError, match=re.escape("backend = 'flash'; expected one of a, ref")):
        decide(make_problem(), H200, backend="flash", known=known(Stub("a")))


def test_fallback_error_leaves_the_reference_out_on_a_gpu_only(
    make_problem: MakeProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDPA_FALLBACK", "error")
    settings.cache_clear()
    table = known(Stub("a", tuple(Direction)))
    assert not decide(make_problem(), H200, known=table).is_possible
    assert decide(make_problem(), CPU, known=table).is_possible
    assert decide(make_problem(), H200, backend="reference", known=table).is_possible


def test_a_workspace_beyond_the_share_is_refused_with_its_size(make_problem: MakeProblem) -> None:
    big = Stub("a", workspace=H200.memory_bytes // 4 + 1)
    decision = decide(make_problem(), H200, known=known(big))
    assert decision.forward.backend == "reference"
    reason = decision.forward.rejected[0][1].reasons[0]
    assert reason.what == "workspace"
    assert str(big.workspace) in str(reason.got)
    fits = Stub("a", workspace=H200.memory_bytes // 4)
    assert decide(make_problem(), H200, known=known(fits)).forward.backend == "a"


def test_reasons_of_the_caller_are_added_to_each_backends_own(make_problem: MakeProblem) -> None:
    against = (Unsupported("caller", "traced", "eager code"),)
    stub = Stub("a", (Direction.FORWARD,))
    decision = decide(make_problem(training=False), H200, known=known(stub), against=against)
    assert decision.forward.backend == "reference"
    whats = [reason.what for reason in decision.forward.rejected[0][1].reasons]
    assert whats == ["caller", "a rule one", "a rule two"]
    assert stub.probed == []


def test_the_slow_path_on_a_gpu_warns_once_with_the_reasons(make_problem: MakeProblem) -> None:
    problem = make_problem(sq=777)
    decision = decide(problem, H200, known=known(Stub("a", tuple(Direction))))
    with pytest.warns(SlowAttentionWarning, match="a rule one = 1, needs 2") as caught:
        warn_if_slow(decision)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_slow(decision)
        warn_if_slow(decide(make_problem(sq=778), H200, known=known(Stub("a", tuple(Direction)))))
        warn_if_slow(decide(problem, CPU, known=known(Stub("a", tuple(Direction)))))
        warn_if_slow(decide(problem, H200, known=known(Stub("a"))))
        warn_if_slow(decide(problem, H200, backend="reference", known=known()))


# ---------------------------------------------------------------------------------- registry


class Entry:
    def __init__(self, name: str, result: object) -> None:
        self.name, self._result = name, result

    def load(self) -> object:
        if isinstance(self._result, Exception):
            raise self._result
        return lambda: self._result


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Entry]]:
    found: list[Entry] = []
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    registry.backends.cache_clear()
    yield found
    registry.backends.cache_clear()


def test_announced_backends_stand_before_the_reference(entries: list[Entry]) -> None:
    entries += [Entry("third_party", Stub("third_party")), Entry("cutedsl", Stub("cutedsl"))]
    assert list(registry.backends()) == ["cudnn", "cutedsl", "third_party", "reference"]


def test_nobody_replaces_a_backend_of_ours(entries: list[Entry]) -> None:
    entries.append(Entry("cudnn", Stub("impostor")))
    assert registry.backends()["cudnn"].name == "cudnn"


def test_a_broken_backend_says_so(entries: list[Entry], make_problem: MakeProblem) -> None:
    entries.append(Entry("cutedsl", ImportError("no module named cutlass")))
    decision = decide(make_problem(band=Band.causal()), CPU)
    reasons = [reason for _, answer in decision.forward.rejected for reason in answer.reasons]
    assert any("ImportError: no module named cutlass" in str(reason) for reason in reasons)
    assert decision.forward.backend == "reference"
