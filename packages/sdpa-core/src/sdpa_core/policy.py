"""Which backend runs a problem: an ordered walk that keeps every reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .backend import Answer, Backend, ReferenceBackend
from .config import Fallback, preferred_backends, settings
from .device import DeviceSpec
from .diagnostics import choice_lines, no_backend_message
from .errors import NoBackendError
from .problem import AttentionProblem, Direction
from .reasons import Tier, Unsupported, Verdict
from .registry import backends as known_backends


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend of one direction, and what became of those before it.

    ``backend`` is None if every candidate refused.
    """

    direction: Direction
    backend: str | None
    answer: Answer | None
    rejected: tuple[tuple[str, Answer], ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Forward and backward, chosen separately. Prints as a report for people."""

    problem: AttentionProblem
    device: DeviceSpec
    choices: tuple[Choice, ...]

    @property
    def forward(self) -> Choice:
        return self.choices[0]

    @property
    def backward(self) -> Choice | None:
        return self.choices[1] if len(self.choices) > 1 else None

    @property
    def is_possible(self) -> bool:
        return all(choice.backend for choice in self.choices)

    def __str__(self) -> str:
        return "\n".join(choice_lines(self.problem, self.device, self.choices))


def candidates(
    device: DeviceSpec, backend: str | None, known: Mapping[str, Backend]
) -> tuple[str, ...]:
    """Names to try, in order: the argument, else the context or environment, else the default.

    Raises:
        ValueError: a name that no installed package provides.
    """
    chosen = preferred_backends() if backend is None else (backend,)
    for name in chosen:
        if name not in known:
            where = "backends() or SDPA_BACKENDS names" if backend is None else "backend ="
            raise ValueError(f"{where} {name!r}; expected one of {', '.join(known)}")
    if chosen:
        return chosen
    if device.platform != "cpu" and settings().fallback is Fallback.ERROR:
        return tuple(name for name in known if name != "reference")
    return tuple(known)


def decide(
    problem: AttentionProblem,
    device: DeviceSpec,
    *,
    backend: str | None = None,
    probe: bool = True,
    known: Mapping[str, Backend] | None = None,
    against: tuple[Unsupported, ...] = (),
) -> Decision:
    """Choose a backend for the forward pass and, when training, one for the backward pass.

    Args:
        backend: use this one or none.
        probe: let libraries be asked, which may build a kernel; otherwise only rules answer.
        known: the backends to choose from; by default all that are installed.
        against: reasons of the calling code against every backend but the reference, for
            instance that the operands are traced and have no address.
    """
    known = known_backends() if known is None else known
    names = candidates(device, backend, known)
    directions = [Direction.FORWARD] + [Direction.BACKWARD] * problem.training
    order = [known[name] for name in names]
    if problem.is_empty:
        # The adapters answer with zeros themselves, whichever backend was asked for.
        order, against = [ReferenceBackend()], ()
    return Decision(
        problem,
        device,
        tuple(_choose(problem, device, d, order, probe, against) for d in directions),
    )


def _choose(
    problem: AttentionProblem,
    device: DeviceSpec,
    direction: Direction,
    order: list[Backend],
    probe: bool,
    against: tuple[Unsupported, ...],
) -> Choice:
    rejected: list[tuple[str, Answer]] = []
    for backend in order:
        if against and backend.name != "reference":
            own = backend.unsupported_reasons(problem, device, direction)
            answer = Answer(Verdict.REFUSED, (*against, *own), Tier.RULES)
        else:
            answer = ask(backend, problem, device, direction, probe)
        if answer.verdict is not Verdict.REFUSED:
            return Choice(direction, backend.name, answer, tuple(rejected))
        rejected.append((backend.name, answer))
    return Choice(direction, None, None, tuple(rejected))


def ask(
    backend: Backend,
    problem: AttentionProblem,
    device: DeviceSpec,
    direction: Direction,
    probe: bool,
) -> Answer:
    """One backend's answer: rules first, then the library, then the workspace limit."""
    reasons = backend.unsupported_reasons(problem, device, direction)
    if reasons:
        return Answer(Verdict.REFUSED, reasons, Tier.RULES)
    if not probe and not backend.rules_suffice:
        return Answer(Verdict.NOT_ASKED, (), Tier.RULES)
    answer = backend.probe(problem, device, direction)
    limit = int(device.memory_bytes * settings().workspace_share)
    if limit and (answer.workspace_bytes or 0) > limit:
        return Answer(
            Verdict.REFUSED,
            (_workspace_reason(answer.workspace_bytes, limit),),
            Tier.RULES,
            answer.workspace_bytes,
        )
    return answer


def _workspace_reason(needed: int | None, limit: int) -> Unsupported:
    return Unsupported(
        "workspace",
        f"{needed} bytes",
        f"at most {limit} bytes",
        "set SDPA_WORKSPACE_SHARE to allow more, or shorten the sequences",
    )


def require(decision: Decision) -> Decision:
    """The decision, if it names a backend for every direction.

    Raises:
        NoBackendError: with the operands and every backend's reasons.
    """
    if not decision.is_possible:
        raise NoBackendError(
            no_backend_message(decision.problem, decision.device, decision.choices)
        )
    return decision
