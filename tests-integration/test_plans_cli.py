"""What ``plans build`` makes of a file of shapes is what the adapters ask for; and it needs no GPU.

A plan's key depends on strides, features, training and options, so a file's words must give the
very problems of the calls: every case of the conformance kit is written as a file, and its keys are
compared with those of the plans that PyTorch and JAX execute, on the fake cuDNN.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import sdpa_jax.testing
import sdpa_torch
import sdpa_torch.testing
from sdpa_core import Band, DeviceSpec, Direction, Unsupported, device_names
from sdpa_core.cli.plans import ACTIONS
from sdpa_core.cli.plans.fields import FIELDS, SIZES
from sdpa_core.cli.plans.presets import presets
from sdpa_core.cli.plans.shapes import Shape, read_shapes
from sdpa_core.cudnn.rules import reasons
from sdpa_core.fingerprint import fingerprint
from sdpa_core.problem import Softmax
from sdpa_core.testing import CASES, Case, covering, in_16_bits
from sdpa_jax.testing import JaxSubject
from sdpa_torch.testing import TorchSubject

CUDNN = 92801
H200 = DeviceSpec.named("h200", cudnn_version=CUDNN)


def options_of(case: Case) -> dict[str, bool]:
    """Training unless it is paged; deterministic, and the largest logit, where cuDNN can."""
    options = {"training": case.page_size is None, "return_lse": True}
    for name in ("deterministic", "return_max_logit"):
        options[name] = not refusal(case, **{**options, name: True})
    return options


def refusal(case: Case, **options: bool) -> tuple[Unsupported, ...]:
    return TorchSubject("torch", backend="cudnn", spec=H200).refusal(case, **options)


def can_be_written(case: Case) -> bool:
    """Functions cannot, nor gaps of one of two packed sides, nor a bias with a mask."""
    gaps = {packing.gaps is not None for packing in case.packings if packing is not None}
    biases = case.bias is not None and case.mask is not None
    on_cudnn = "slice" in case.tags and not {"empty", "large"} & case.tags
    can_be_said = case.score_mod is None and len(gaps) < 2 and not biases
    return on_cudnn and can_be_said and not refusal(case, **options_of(case))


def with_new_words(cases: Iterable[Case]) -> Iterator[Case]:
    """Those that say something about a feature that none before says."""
    said: set[str] = set()
    for case in cases:
        lines = written(case, "bhsd").splitlines()
        words = {line for line in lines if line.partition(" ")[0] not in NUMBERS}
        if not words <= said:
            said |= words
            yield case


def written(case: Case, layout: str) -> str:
    """A file of shapes for a case, that trains unless it is paged."""
    pages = None if case.page_size is None else len(case.pages(case.arrays()).key_pool)
    options = options_of(case)
    fields = {
        "batch": case.batch,
        "heads": case.heads,
        "heads_kv": case.heads_kv,
        "tokens": case.tokens_q,
        "tokens_kv": case.tokens_kv,
        "head_dim": case.head_dim,
        "v_dim": case.head_dim_v,
        "dtype": str(case.dtype),
        "layout": "bhsd" if case.packed == "both" else layout,
        "window": window(case.band),
        "bias": bias(case),
        "bias_grad": case.bias is not None and case.bias_grad and case.page_size is None,
        "sink_grad": case.softmax is Softmax.LEARNABLE and case.page_size is None,
        "alibi": case.alibi == "standard",
        "alibi_slopes": {"head": "h", "batch_head": "bh"}.get(case.alibi or ""),
        "softmax": str(case.softmax),
        "softcap": case.softcap,
        "dropout": case.dropout_p,
        "seq_lens_q": case.seq_lens_q is not None,
        "seq_lens_kv": case.seq_lens_kv is not None,
        "packed": packed(case),
        "gaps": any(one is not None and one.gaps is not None for one in case.packings),
        "page_size": case.page_size,
        "pages": pages,
        "training": options["training"],
        "lse": True,
        "deterministic": options["deterministic"],
        "max_logit": options["return_max_logit"],
    }
    said = {name: value for name, value in fields.items() if value is not None}
    lines = (f"{name} = {json.dumps(value)}" for name, value in said.items())
    return "\n".join(("[[attention]]", *lines))


def window(band: Band) -> str | None:
    left, right = ("inf" if side is None else side for side in (band.left, band.right))
    return None if band == Band() else f"{left},{right}:{band.alignment}"


def bias(case: Case) -> str | None:
    axes = case.mask or case.bias
    if axes is None:
        return None
    letters = ",".join("t" if axis == 3 else letter for axis, letter in enumerate(axes))
    return f"{letters}:{'bool' if case.mask else case.effective_bias_dtype}"


def packed(case: Case) -> str | None:
    sides = zip(("q", "kv"), case.packings, strict=True)
    return " ".join(f"{side}:{one.tokens}" for side, one in sides if one is not None) or None


def keys(shapes: list[Shape], device: DeviceSpec = H200, version: str = "1.32.0") -> set[str]:
    return {
        fingerprint(shape.problem.for_direction(direction), device, direction, version)
        for shape in shapes
        for direction in ([*Direction] if shape.problem.training else [Direction.FORWARD])
    }


#: Numbers that are as good as others.
NUMBERS = {*SIZES, "v_dim", "pages", "packed"}
USUAL = {"layout": "bhsd", "bias_layout": "dense", "own_value_table": False}
WRITTEN = tuple(
    with_new_words(
        case
        for case in (replace(case, **USUAL) for case in covering(in_16_bits(CASES)))
        if can_be_written(case)
    )
)
each_case = pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case.name)


@each_case
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_file_says_what_the_adapters_ask_for(case: Case, framework: str, tmp_path: Path) -> None:
    """Operands [B, H, S, D] in memory in PyTorch, [B, S, H, D] in JAX."""
    options = options_of(case)
    if framework == "torch":
        subject, fake = TorchSubject, sdpa_torch.testing.fake_cudnn
        arguments = {"backend": "cudnn", "grad_like_output": True}
    else:
        subject, fake, arguments = (
            JaxSubject,
            sdpa_jax.testing.fake_cudnn,
            {"implementation": "cudnn"},
        )
    with fake(cudnn_version=CUDNN) as found:
        caller = subject(framework, spec=H200, **arguments)
        caller.run(case, case.arrays(), **options)
    shapes = tmp_path / "shapes.toml"
    shapes.write_text(written(case, "bhsd" if framework == "torch" else "bshd"))
    assert keys(read_shapes(shapes)) == {plan.fingerprint for plan in found.executed}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("transposed", [False, True], ids=["bhsd", "bshd"])
def test_a_model_in_torch(transposed: bool, training: bool, tmp_path: Path) -> None:
    """Without the subjects: operands as projections make them, the output turned back."""
    shapes = tmp_path / "shapes.toml"
    layout = "bshd" if transposed else "bhsd"
    shapes.write_text(
        "[[attention]]\nheads = 4\nheads_kv = 2\ntokens = 24\nhead_dim = 64\ncausal = true\n"
        f"batch = 2\nlayout = '{layout}'\ntraining = {json.dumps(training)}\n"
        + ("grad_layout = 'bshd'\n" if training else "")
    )
    with sdpa_torch.testing.fake_cudnn(cudnn_version=CUDNN) as fake:
        q, k, v = (
            torch.randn(2, 24, heads, 64).bfloat16().transpose(1, 2).requires_grad_(training)
            for heads in (4, 2, 2)
        )
        if not transposed:
            q, k, v = (x.detach().contiguous().requires_grad_(training) for x in (q, k, v))
        out = sdpa_torch.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True, backend="cudnn"
        )
        if training:
            rows = out.transpose(1, 2).reshape(2, 24, 256)
            rows.backward(torch.randn(rows.shape).bfloat16())
    assert keys(read_shapes(shapes)) == {plan.fingerprint for plan in fake.executed}


def test_every_field_is_compared() -> None:
    """With the cases above and what they cannot say."""
    said = {
        line.split(" = ")[0]
        for case in WRITTEN
        for line in written(case, "bhsd").splitlines()[1:]
        if not line.endswith(" = false")
    }
    elsewhere = {"q", "kv", "causal", "grad_layout"}
    assert said | elsewhere == set(FIELDS)


# ------------------------------------------------------------------- without a GPU, with cuDNN


def plans(folder: Path, *arguments: str, store: str = "on") -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"}
    environment |= {"SDPA_CACHE_DIR": str(folder / "store"), "SDPA_PLAN_STORE": store}
    environment.pop("SDPA_PLAN_PACKS", None)
    return subprocess.run(
        [sys.executable, "-m", "sdpa_core", "plans", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )


TINY = """
[[attention]]
heads = 2
tokens = 64
head_dim = 64
"""


def test_plans_are_built_for_gpus_that_are_not_here(tmp_path: Path) -> None:
    """By two processes, with the cuDNN that is installed; then found, checked, and moved."""
    pytest.importorskip("rich")
    pytest.importorskip("tqdm")
    (tmp_path / "shapes.toml").write_text(TINY)
    build = ("build", "--device", "h200", "b200", "shapes.toml", "--jobs", "2")
    first = plans(tmp_path, *build)
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith("2 plans built\n")
    again = plans(tmp_path, *build, "--out", "pack")
    assert again.returncode == 0, again.stderr
    assert "0 plans built, 2 already there\n2 plans, " in again.stdout
    listed = json.loads(plans(tmp_path, "list", "--json").stdout)
    assert {plan["sm"] for plan in listed} == {90, 100}
    assert json.loads((tmp_path / "pack" / "manifest.json").read_text())["devices"] == [
        {"sm": 90, "sm_count": 132},
        {"sm": 100, "sm_count": 148},
    ]
    checked = plans(tmp_path, "verify", "--deep")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.endswith(
        "2 plans in " + str(tmp_path / "store/plans-v1") + ": 0 bad\ncuDNN loads 2 plans\n"
    )
    shapes = read_shapes(tmp_path / "shapes.toml")
    version, frontend = installed()
    wanted = [
        keys(shapes, DeviceSpec.named(name, cudnn_version=version), frontend)
        for name in ("h200", "b200")
    ]
    assert {plan["fingerprint"] for plan in listed} == wanted[0] | wanted[1]


def installed() -> tuple[int, str]:
    from sdpa_core.cudnn import session

    return session.cudnn_version(), session.frontend_version()


# ------------------------------------------------------------------------------- the page

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "plans.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_s_commands_run(tmp_path: Path) -> None:
    """In their order, but those that need plans after those that build them."""
    pytest.importorskip("sdpa_ffi")
    (tmp_path / "shapes.toml").write_text(f"{TINY}training = true\n")
    said = [line.split()[1:] for block in blocks("console") for line in block.splitlines()]
    commands = [shlex.split(" ".join(words)) for words in said if words[0] == "python"]
    assert all(command[:4] == ["python", "-m", "sdpa_core", "plans"] for command in commands)
    order = ("build", "export", "import", "list", "show", "verify", "clear")
    for _, _, _, _, *command in sorted(commands, key=lambda command: order.index(command[4])):
        if command[0] == "show":
            found = json.loads(plans(tmp_path, "list", "--json").stdout)
            command[1] = found[0]["fingerprint"][:20]
        done = plans(tmp_path, *command)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout
    assert {command[4] for command in commands} == set(order) == {action.name for action in ACTIONS}


def test_the_page_s_file_of_shapes(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "shapes.toml").write_text(text)
    shapes = read_shapes(tmp_path / "shapes.toml")
    assert len(shapes) == 2 * 4 + 8 + 2
    for shape in shapes:
        directions = Direction if shape.problem.training else (Direction.FORWARD,)
        for direction in directions:
            assert reasons(shape.problem, H200, direction) == ()


def test_the_page_lists_every_field_preset_and_device() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    names = [
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert {*names} - {"preset"} == set(FIELDS)
    (row,) = (line for line in table.splitlines() if line.startswith("| `preset`"))
    assert re.findall(r"`([\w.-]+)`", row)[1:] == list(presets())
    assert all(f"`{name}`" in PAGE for name in device_names())
