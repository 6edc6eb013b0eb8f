"""``explain``: which backend would run a problem, and every reason of those that would not."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict, replace

from ..backend import Answer
from ..cudnn import session
from ..device import DeviceSpec, device_names
from ..diagnostics import costs
from ..errors import SdpaEnvironmentError
from ..policy import Choice, Decision, decide
from ..problem import AttentionProblem
from ..reasons import Verdict
from ..words import features, tensors
from . import options, values
from .command import Command
from .problem import problem as problem_of

#: Of several devices of one compute capability, the one that most figures were measured on.
_MEASURED = "h200"


def _add_arguments(parser: ArgumentParser) -> None:
    where = parser.add_argument_group("device")
    one = where.add_mutually_exclusive_group(required=True)
    one.add_argument("--device", metavar="NAME", help=f"one of {', '.join(device_names())}")
    one.add_argument(
        "--sm", type=values.compute_capability, metavar="N", help="compute capability, 90 for 9.0"
    )
    where.add_argument("--cudnn", type=values.version, metavar="VERSION", help="9.19, or 9.19.2")
    where.add_argument("--backend", metavar="NAME", help="this one or none")
    options.add_arguments(parser)
    answer = parser.add_argument_group("answer")
    answer.add_argument("--probe", action="store_true", help="build plans with the cuDNN installed")
    answer.add_argument("--json", action="store_true", help="for programs")


def _run(given: Namespace) -> int:
    asked = problem_of(given)
    device = _device(given)
    if given.probe:
        decision, silence = _probed(asked, device, given.backend)
    else:
        decision = decide(asked, device, backend=given.backend, probe=False)
        silence = "--probe builds a plan with the cuDNN that is installed"
    if not any(_is_not_asked(choice.answer) for choice in decision.choices):
        silence = ""
    text = _as_json(decision, silence) if given.json else _as_text(decision, silence)
    sys.stdout.write(f"{text}\n")
    return 0


COMMAND = Command(
    name="explain",
    summary="Say which backend would run an attention problem, and why the others would not.",
    add_arguments=_add_arguments,
    run=_run,
    epilog="Runs nothing and needs no GPU. Shapes are [batch, heads, tokens, head_dim]. "
    "Of packed sequences: the number of sequences, and the tokens of the longest one.",
)


def _device(given: Namespace) -> DeviceSpec:
    if given.device is not None:
        return DeviceSpec.named(given.device, cudnn_version=given.cudnn)
    alike = [name for name in device_names() if DeviceSpec.named(name).sm == given.sm]
    if alike:
        name = _MEASURED if _MEASURED in alike else alike[0]
        return DeviceSpec.named(name, cudnn_version=given.cudnn)
    return DeviceSpec(
        "cuda",
        f"a GPU of compute capability {given.sm / 10}",
        sm=given.sm,
        cudnn_version=given.cudnn,
    )


def _probed(
    asked: AttentionProblem, device: DeviceSpec, backend: str | None
) -> tuple[Decision, str]:
    """cuDNN's own answer; where it cannot be asked, that of the rules, and why."""
    try:
        installed = replace(device, cudnn_version=device.cudnn_version or session.cudnn_version())
        return decide(asked, installed, backend=backend), ""
    except SdpaEnvironmentError as error:
        return decide(asked, device, backend=backend, probe=False), str(error)


def _is_not_asked(answer: Answer | None) -> bool:
    return answer is not None and answer.verdict is Verdict.NOT_ASKED


def _as_text(decision: Decision, silence: str) -> str:
    return f"{decision}\nnot asked: {silence}" if silence else str(decision)


def _as_json(decision: Decision, silence: str) -> str:
    """The same as an object. ``got`` of a reason is a number or a text."""
    device, problem = decision.device, decision.problem
    found = {
        "device": {
            "name": device.name,
            "sm": device.sm,
            "sm_count": device.sm_count,
            "cudnn_version": device.cudnn_version,
        },
        "tensors": [
            {
                "name": seen.name,
                "shape": seen.spec.shape,
                "strides": seen.spec.strides,
                "dtype": seen.spec.dtype,
                "remark": seen.remark,
            }
            for seen in tensors(problem)
        ],
        "features": features(problem),
        "choices": [_choice(choice) for choice in decision.choices],
        "notes": costs(problem, device, decision.choices),
        "not_asked": silence or None,
    }
    return json.dumps(found, indent=2, default=str)


def _choice(choice: Choice) -> dict[str, object]:
    return {
        "direction": choice.direction,
        "backend": choice.backend,
        **(_answer(choice.answer) if choice.answer else {}),
        "rejected": [
            {"backend": name, **_answer(answer), "reasons": [asdict(r) for r in answer.reasons]}
            for name, answer in choice.rejected
        ],
    }


def _answer(answer: Answer) -> dict[str, object]:
    return {
        "verdict": answer.verdict,
        "tier": answer.tier,
        "workspace_bytes": answer.workspace_bytes,
    }
