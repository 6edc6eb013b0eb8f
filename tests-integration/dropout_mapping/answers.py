"""The answer to a question: on this machine's GPU, or of a dry run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cudnn

from sdpa_core import DeviceSpec
from sdpa_core.cudnn import deviceless

from .execution import Runner
from .explain import explain
from .graphs import Call
from .observations import WAYS
from .questions import Question


def answer(runner: Runner, question: Question) -> Iterator[tuple[str, dict[str, Any]]]:
    """What every way, and where it is asked for every plan, shows."""
    setup = question.setup
    ways = list(question.ways)
    for name in ways:  # grows: where a dump is refused, what is read back has to do
        way, direction, dump = WAYS[name]
        label = f"{question.name}: {name}"
        try:
            plans: dict[int | None, str] = {None: ""}
            if question.every_plan:
                call = runner.call(setup, direction, dump)
                plans = {i: f" {call.graph.get_plan_name_at_index(i)}" for i in call.plans()}
        except Exception as error:  # noqa: BLE001 (one failure must not end the script)
            yield label, {"error": text_of(error)}
            plans = {}
        failed = not plans
        for plan, plan_name in plans.items():
            try:
                observed = way(runner, setup, direction, plan)
                result = explain(setup, observed, question.vary)
            except Exception as error:  # noqa: BLE001 (as above)
                result = {"error": text_of(error)}
            failed |= "error" in result
            yield label + plan_name, result
        instead = "output" if direction == "forward" else "gradient"
        if failed and instead not in ways:
            ways.append(instead)


def dry_answer(target: dict[str, Any], question: Question) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whether every graph of a question is planned and compiles, without a device."""
    for name in question.ways:
        _, direction, dump = WAYS[name]
        label = f"{question.name}: {name}"
        try:
            call = Call(target, question.setup, direction, dump)
            built = [call.build(plan) for plan in (call.plans() if question.every_plan else [None])]
            plans = [call.graph.get_plan_name_at_index(i) for i in built]
            yield label, {"plans": ", ".join(plans), "offered": len(call.plans())}
        except Exception as error:  # noqa: BLE001 (as above)
            yield label, {"error": text_of(error)}


def dry_target() -> dict[str, Any]:
    deviceless.prepare()
    device = DeviceSpec.named("h200")
    return {
        "sm_version": device.sm,
        "device_property": cudnn.create_device_properties(device.properties),
    }


def text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
