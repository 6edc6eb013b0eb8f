"""Running a subject, or seeing it refuse."""

from __future__ import annotations

from dataclasses import replace

from ...errors import NoBackendError
from ..case import Case, Inputs
from ..subject import Result, Subject


def run(
    subject: Subject,
    case: Case,
    inputs: Inputs | None = None,
    *,
    training: bool,
    return_lse: bool,
    return_max_logit: bool = False,
    deterministic: bool = False,
) -> Result | None:
    """The subject's result; None if the case is one it must refuse, and it did.

    Args:
        subject, case: what to run.
        inputs: None: the case's own.
        training, return_lse, return_max_logit, deterministic: see ``Subject.run``.

    Raises:
        AssertionError: the subject ran a case that it should refuse, or left out a reason.
    """
    inputs = case.arrays() if inputs is None else inputs
    options = {
        "training": training,
        "return_lse": return_lse,
        "return_max_logit": return_max_logit,
        "deterministic": deterministic,
    }
    reasons = subject.refusal(case, **options)
    if not reasons:
        return subject.run(case, inputs, **options)
    try:
        subject.run(case, inputs, **options)
    except NoBackendError as error:
        text = str(error)
    else:
        raise AssertionError(f"{subject.name} ran {case.name}, which it refuses: {reasons[0]}")
    told = [str(replace(reason, hint="")) for reason in reasons]  # hints are collected at the end
    missing = [reason for reason in told if reason not in text]
    if missing:
        raise AssertionError(f"the refusal of {case.name} lacks {missing}:\n{text}")
    return None
