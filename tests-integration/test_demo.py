"""The demo of docs/examples: it runs, and its comparison can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples"
SCRIPT = EXAMPLES / "train_char_transformer.py"


def run(*arguments: str, **variables: str) -> str:
    command = (sys.executable, str(SCRIPT), "--no-plot", *arguments)
    environment = {**os.environ, **variables}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.gpu
def test_on_a_gpu():
    output = run("--steps", "20", XLA_PYTHON_CLIENT_PREALLOCATE="false")
    here, there = output.split("The same call in bfloat16 on an H200")
    for part in (here, there):
        assert "forward: cudnn" in part
        assert "backward: cudnn" in part
    assert "PyTorch and JAX agree." in there


def test_three_steps():
    output = run("--steps", "3", CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu")
    for line in (
        "attention on CPU",
        "attention on NVIDIA H200",
        "Largest error against float64",
        "largest difference of the losses",
        "PyTorch and JAX agree.",
    ):
        assert line in output
    plans = [line.split() for line in output.splitlines() if "bytes" in line and "eng" in line]
    assert [words[0] for words in plans] == ["forward", "backward"]


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import train_char_transformer

    monkeypatch.setattr(train_char_transformer, "inspect_attention", lambda place, seed: [])
    monkeypatch.setattr(train_char_transformer.torch, "set_num_threads", lambda count: None)
    return train_char_transformer


def test_other_batches_are_a_failure(demo, monkeypatch):
    train = demo.model_jax.train

    def train_on_others(weights, batches, **options):
        return train(weights, batches[::-1], **options)

    monkeypatch.setattr(demo.model_jax, "train", train_on_others)
    with pytest.raises(SystemExit, match="largest difference of the losses"):
        demo.main(["--steps", "2", "--no-plot"])


@pytest.mark.parametrize(
    ("torch_curve", "jax_curve", "complaint"),
    [
        ([4.0, 3.0], [4.0, 3.0 + 5e-5], None),
        ([4.0, 3.0], [4.0, 3.0 + 2e-4], "difference of the losses 2.0e-04 (step 2)"),
        ([4.0, 3.0], [float("nan"), 3.0], "difference of the losses nan (step 1)"),
        ([4.0, 5.0], [4.0, 5.0], "the loss in PyTorch did not fall"),
    ],
)
def test_what_counts_as_agreement(demo, torch_curve, jax_curve, complaint):
    losses = {"PyTorch": torch_curve, "JAX": jax_curve}
    found = demo.disagreements(losses, tolerance=1e-4)
    assert found == [] if complaint is None else complaint in found[0]


def test_picture(demo, tmp_path):
    from char_transformer import plot

    path = tmp_path / "new folder" / "loss.png"
    plot.save(path, {"PyTorch": [4.0, 3.0], "JAX": [4.0, 3.1]}, 1e-4, "title")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_too_few_steps_are_an_error(demo, capsys):
    with pytest.raises(SystemExit):
        demo.main(["--steps", "1"])
    assert "at least 2 steps" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["jax", "torch", "rich"])
def test_what_is_missing_is_named(module):
    code = f"import sys, runpy; sys.modules[{module!r}] = None; runpy.run_path({str(SCRIPT)!r})"
    result = subprocess.run(
        (sys.executable, "-c", code), cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"{module} is not installed.")
    assert "nox -s demo" in result.stderr
