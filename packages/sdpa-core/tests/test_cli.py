"""``python -m sdpa_core``: options become the problem they say, answers are told, mistakes too."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from sdpa_core import (
    Alignment,
    AttentionProblem,
    Band,
    DeviceSpec,
    DType,
    SdpaEnvironmentError,
    device_names,
    registry,
)
from sdpa_core.cli import COMMANDS, main, parser, values
from sdpa_core.cli import problem as problems
from sdpa_core.config import settings
from sdpa_core.cudnn import probe, session
from sdpa_core.paged import Paged
from sdpa_core.plan_cache import PlanCache
from sdpa_core.problem import Softmax
from sdpa_core.ragged import Packed

Captured = pytest.CaptureFixture[str]
DOCUMENTED = Path(__file__).parents[3] / "docs" / "errors.md"


@pytest.fixture(autouse=True)
def only_our_backends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever this machine has installed or set."""
    for name in ("SDPA_BACKENDS", "SDPA_FALLBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    for found in (settings, registry.backends):
        found.cache_clear()
    yield
    for found in (settings, registry.backends):
        found.cache_clear()


def described(options: str) -> AttentionProblem:
    """The problem of these options."""
    given = parser().parse_args(shlex.split(f"explain --sm 90 --q 2,16,256,64 {options}"))
    return problems.problem(given)


def explain(options: str) -> int:
    return main(shlex.split(f"explain --q 2,16,256,64 {options}"))


# --------------------------------------------------------------------------------- options

#: An option, and the field that it sets.
OPTIONS: dict[str, tuple[str, object]] = {
    "--causal": ("band", Band.causal()),
    "--causal bottom_right --kv 2,16,64,64": ("band", Band(None, 0, Alignment.BOTTOM_RIGHT)),
    "--causal --window 16,inf": ("band", Band(16, 0)),
    "--window 16,8": ("band", Band(16, 8)),
    "--window 16,8:bottom_right --kv 2,16,64,64": ("band", Band(16, 8, Alignment.BOTTOM_RIGHT)),
    "--alibi": ("alibi", True),
    "--softmax off_by_one": ("softmax", Softmax.OFF_BY_ONE),
    "--softcap 30": ("softcap", 30.0),
    "--dropout 0.25": ("dropout_p", 0.25),
    "--seq-lens-q": ("seq_lens_q", True),
    "--seq-lens-kv": ("seq_lens_kv", True),
    "--packed q": ("packed_q", Packed(512)),
    "--packed kv:300 --gaps": ("packed_kv", Packed(300, gaps=True)),
    "--packed q:100 --packed kv:200": ("packed_kv", Packed(200)),
    "--training": ("training", True),
    "--lse": ("return_lse", True),
    "--max-logit": ("return_max_logit", True),
    "--deterministic": ("deterministic", True),
    "--training --bias 1,1,256,256 --bias-grad": ("bias_grad", True),
    "--training --softmax learnable --sink-grad": ("sink_grad", True),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_an_option_sets_its_field(options: str) -> None:
    name, expected = OPTIONS[options]
    assert getattr(described(options), name) == expected


def test_every_feature_has_an_option() -> None:
    reached = {name for name, _ in OPTIONS.values()}
    tensors = {"bias", "alibi_slopes", "paged"}  # tested below
    # A function and the strides of an incoming gradient cannot be typed.
    unreachable = {"score_mod", "grad_output"}
    features = {field.name for field in fields(AttentionProblem) if field.default is not MISSING}
    assert reached | tensors | unreachable == features


def test_operands() -> None:
    problem = described("--dtype fp16 --kv 2,4,512,64 --v-dim 128 --layout bshd")
    assert problem.query.strides == (16 * 256 * 64, 64, 16 * 64, 1)
    assert problem.key.shape == (2, 4, 512, 64)
    assert problem.value.shape == (2, 4, 512, 128)
    assert problem.output.shape == (2, 16, 256, 128)
    assert {problem.query.dtype, problem.key.dtype, problem.value.dtype} == {DType.FLOAT16}
    assert described("--layout sbhd").query.strides == (16 * 64, 64, 2 * 16 * 64, 1)


def test_a_bias_and_slopes() -> None:
    bias = described("--bias 256,256").bias
    assert bias is not None
    assert (bias.shape, bias.dtype) == ((1, 1, 256, 256), DType.BFLOAT16)
    assert (described("--bias 2,1,1,256:fp32").bias or bias).dtype is DType.FLOAT32
    assert (described("--bias 2,1,1,256:bool").bias or bias).dtype is DType.BFLOAT16
    for options, shape in (("", (1, 16, 1, 1)), ("bh", (2, 16, 1, 1))):
        slopes = described(f"--alibi-slopes {options}").alibi_slopes
        assert slopes is not None
        assert slopes.shape == shape


def test_packed_operands() -> None:
    problem = described("--packed both --kv 2,4,512,64")
    assert problem.query.shape == (2, 16, 256, 64)
    assert problem.query.strides[1:] == (64, 16 * 64, 1)
    assert (problem.packed_q, problem.packed_kv) == (Packed(512), Packed(1024))


def test_pages() -> None:
    problem = described("--kv 2,4,100,64 --page-size 64")
    assert problem.key.shape == (4, 4, 64, 64)
    assert problem.key.strides == (64 * 4 * 64, 64, 4 * 64, 1)
    assert isinstance(problem.paged, Paged)
    assert problem.paged.key_table.shape == (2, 2)
    assert problem.tokens_kv == 100


def test_the_largest_numbers() -> None:
    assert described("--packed both:2147483647").packed_q.tokens == 2147483647
    assert values.count("2147483647") == 2147483647


# -------------------------------------------------------------------------------- mistakes

MISTAKES = {
    "--kv 2,3,256,64": "the query's heads must be a multiple of the key's",
    "--kv 2,16,256": "key has shape [2, 16, 256]; expected 4 axes",
    "--q 2,16,256,-64": "'2,16,256,-64' is no shape",
    "--dtype int32": "query has dtype int32; attention takes one of",
    "--dtype half": "'half' is no dtype; expected one of float16",
    "--bias 1,1,25,256": "--bias has shape [1, 1, 25, 256]; expected the logits' [2, 16, 256, 256]",
    "--bias 1,256,256 --bias-grad": "--bias-grad needs --bias and --training",
    "--bias 256,256:bool --bias-grad --training": "needs a bias that is no boolean mask",
    "--sink-grad --training": "--sink-grad needs --softmax learnable",
    "--alibi --alibi-slopes": "give one of them",
    "--softmax plain": "'plain'; expected one of vanilla, off_by_one, learnable",
    "--softcap 0": "--softcap = 0.0; expected a positive finite number",
    "--softcap nan": "--softcap = nan",
    "--dropout 1": "--dropout = 1.0; expected a number in [0, 1)",
    "--window 3": "'3' is no window",
    "--window 3,1 --causal": "--window has right bound 1; with --causal it is 0 or inf",
    "--window 3,0:bottom_right --causal": "--window is aligned bottom_right, --causal top_left",
    "--causal middle": "'middle'; expected top_left or bottom_right",
    "--packed v": "'v'; expected q, kv or both",
    "--packed both --packed q": "--packed names a side twice",
    "--packed q --seq-lens-q": "--seq-lens-q is for dense ones",
    "--packed kv --seq-lens-kv": "--seq-lens-kv is for dense ones",
    "--packed kv --page-size 64": "--page-size and --packed kv exclude each other",
    "--packed both --layout bshd": "--layout is for dense operands",
    "--gaps": "--gaps needs --packed",
    "--page-size 0": "'0'; expected a positive integer",
    "--page-size 2147483648": "expected a positive integer, at most 2147483647",
    "--packed both:99999999999999999999": "or with rows: kv:20000, at most 2147483647",
    "--packed kv --q 70000,1,70000,64 --kv 70000,1,70000,64": "--packed kv has 4900000000 rows",
    "--kv 2,16,2147483648,64": "is no shape; expected lengths such as 2,16,4096,128, at most 2147",
    "--v-dim 99999999999": "'99999999999'; expected 0 or more, at most 2147483647",
    "--v-dim -8": "'-8'; expected 0 or more",
    "--window 0,2147483648": "such as 128,0 or 128,inf, at most 2147483647",
    "--cudnn nine": "'nine' is no version",
    "--backend flash": "backend = 'flash'; expected one of cudnn, reference",
    "--frobnicate": "unrecognized arguments: --frobnicate",
    "--train": "unrecognized arguments: --train",
}


@pytest.mark.parametrize("options", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(options: str, capsys: Captured) -> None:
    assert explain(f"--sm 90 {options}") == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("python -m sdpa_core: ")
    assert MISTAKES[options] in err
    assert err.count("\n") == 1


def test_devices_that_cannot_be(capsys: Captured) -> None:
    for options, text in (
        ("", "one of the arguments --device --sm is required"),
        ("--sm 90 --device h200", "not allowed with"),
        ("--device h300", "device = 'h300'; expected one of a100, b200"),
    ):
        assert explain(options) == 2
        assert text in capsys.readouterr().err


@pytest.mark.parametrize("text", ["900", "9.0", "0", "-90", "", "9" * 5000])
def test_compute_capabilities_that_nvidia_has_not(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"no compute capability .* expected one of 50, 52"):
        values.compute_capability(text)


def test_every_described_device_has_a_known_compute_capability() -> None:
    for name in device_names():
        sm = DeviceSpec.named(name).sm
        assert values.compute_capability(str(sm)) == sm


def test_no_command(capsys: Captured) -> None:
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["", *(command.name for command in COMMANDS)])
def test_help(options: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as status:
        main([*options.split(), "--help"])
    assert status.value.code == 0
    assert "usage: python -m sdpa_core" in capsys.readouterr().out


# --------------------------------------------------------------------------------- answers


def test_the_rules_pass_and_the_library_was_not_asked(capsys: Captured) -> None:
    assert explain("--sm 90 --cudnn 9.19 --training") == 0
    text = capsys.readouterr().out
    assert text.startswith("attention on NVIDIA H200 (sm90, 132 multiprocessors, cuDNN 9.19.0)\n")
    assert "forward: cudnn (passes the rules; the library was not asked)" in text
    assert "backward: cudnn (passes the rules; the library was not asked)" in text
    assert "not asked: --probe" in text


def test_refused_with_reasons(capsys: Captured) -> None:
    assert explain("--device h200 --dtype fp32") == 0
    text = capsys.readouterr().out
    assert "forward: reference (supported by rules)" in text
    assert "cudnn: refused by rules" in text
    assert "query.dtype = float32, needs float16 or bfloat16" in text
    assert "not asked" not in text


def test_no_backend_is_an_answer(capsys: Captured) -> None:
    assert explain("--device h200 --dtype fp32 --backend cudnn") == 0
    assert "forward: no backend" in capsys.readouterr().out


def test_a_device_that_nobody_describes(capsys: Captured) -> None:
    assert explain("--sm 86") == 0
    assert capsys.readouterr().out.startswith("attention on a GPU of compute capability 8.6 (sm86")


def test_json(capsys: Captured) -> None:
    assert explain("--device h200 --dtype fp32 --training --dropout 0.5 --json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"]["name"] == "NVIDIA H200"
    assert found["device"]["cudnn_version"] is None
    assert found["tensors"][0] == {
        "name": "query",
        "shape": [2, 16, 256, 64],
        "strides": [262144, 16384, 64, 1],
        "dtype": "float32",
        "remark": "",
    }
    assert found["features"] == {"dropout_p": "0.5", "training": "yes"}
    forward, backward = found["choices"]
    assert (forward["direction"], backward["direction"]) == ("forward", "backward")
    assert (forward["backend"], forward["verdict"]) == ("reference", "supported")
    (rejected,) = forward["rejected"]
    assert (rejected["backend"], rejected["verdict"], rejected["tier"]) == (
        "cudnn",
        "refused",
        "rules",
    )
    assert rejected["reasons"][0] == {
        "what": "query.dtype",
        "got": "float32",
        "need": "float16 or bfloat16",
        "hint": "cast query, key and value",
    }
    assert found["not_asked"] is None


def test_json_of_no_backend(capsys: Captured) -> None:
    assert explain("--device h200 --dtype fp32 --backend cudnn --json") == 0
    (forward,) = json.loads(capsys.readouterr().out)["choices"]
    assert forward["backend"] is None


# ----------------------------------------------------------------------------------- probe


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN 9.28.1, of which nothing but the version can be asked."""
    frontend = SimpleNamespace(__version__="1.32.0", backend_version=lambda: 92801)
    monkeypatch.setattr(session, "frontend", lambda: frontend)
    monkeypatch.setattr(probe, "cache", PlanCache())


Build = Callable[..., session.Built]


@pytest.fixture
def build(installed: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[Build], None]:
    del installed
    return lambda function: monkeypatch.setattr(session, "build", function)


def test_probe_tells_the_librarys_answer(build: Callable[[Build], None], capsys: Captured) -> None:
    build(lambda *args, **kwargs: session.Built(b"blob", 4096, "engine"))
    assert explain("--device h200 --probe") == 0
    text = capsys.readouterr().out
    assert "cuDNN 9.28.1)" in text
    assert "forward: cudnn (supported by probe; workspace 4,096 bytes)" in text
    assert "not asked" not in text


def test_probe_tells_the_librarys_refusal(build: Callable[[Build], None], capsys: Captured) -> None:
    def refuse(*args: object, **kwargs: object) -> session.Built:
        raise session.GraphRefusedError("no engine for this graph")

    build(refuse)
    assert explain("--device h200 --probe") == 0
    text = capsys.readouterr().out
    assert "cudnn: refused by probe" in text
    assert "no engine for this graph" in text


@pytest.mark.usefixtures("installed")
def test_another_version_than_the_installed_one_cannot_be_asked(capsys: Captured) -> None:
    assert explain("--device h200 --probe --cudnn 9.19") == 0
    text = capsys.readouterr().out
    assert "cuDNN 9.19.0)" in text
    assert "(passes the rules; the library was not asked)" in text
    assert "not asked: a plan for cuDNN 9.19.0 was asked for, cuDNN 9.28.1 is loaded" in text


def test_without_cudnn_there_is_nothing_to_ask(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def missing() -> None:
        raise SdpaEnvironmentError("nvidia-cudnn-frontend is not installed")

    monkeypatch.setattr(session, "frontend", missing)
    assert explain("--device h200 --probe") == 0
    assert "not asked: nvidia-cudnn-frontend is not installed" in capsys.readouterr().out


# ------------------------------------------------------------------------------- the process


def test_nothing_heavy_is_imported() -> None:
    code = """
import sys
from sdpa_core.__main__ import main
assert main(["explain", "--sm", "90", "--q", "2,16,256,64", "--training"]) == 0
heavy = {"torch", "jax", "numpy", "cudnn", "rich"} & set(sys.modules)
assert not heavy, heavy
"""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)


def test_run_as_a_module() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "sdpa_core", "explain", "--sm", "90", "--q", "2,16"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert result.returncode == 2
    assert result.stderr.startswith("python -m sdpa_core: query has shape [2, 16]")


def test_answers_at_once_in_a_warm_process(capsys: Captured) -> None:
    """Under 50 ms; 0.4 ms where it was written."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        assert explain("--sm 90 --cudnn 9.19 --kv 2,4,256,64 --causal bottom_right --training") == 0
        times.append(time.perf_counter() - start)
    capsys.readouterr()
    assert min(times[1:]) < 0.05


@pytest.mark.skipif(not DOCUMENTED.exists(), reason="a source distribution has no docs")
def test_the_documented_example_is_what_the_command_prints(capsys: Captured) -> None:
    block = DOCUMENTED.read_text().partition("```console\n")[2].partition("```")[0]
    command, _, shown = block.partition("\n")
    while command.endswith("\\"):
        line, _, shown = shown.partition("\n")
        command = command.removesuffix("\\") + line
    assert command.startswith("$ python -m sdpa_core explain ")
    assert main(shlex.split(command)[4:]) == 0
    assert capsys.readouterr().out == shown
