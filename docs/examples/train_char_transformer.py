"""Train one small transformer in PyTorch and in JAX, and compare the two.

Both start from the same weights, see the same batches of this repository's documentation, and do
the same arithmetic; attention comes from sdpa_torch in one and sdpa_jax in the other. Their loss
curves must agree. On the way, a look at one attention call: which backend runs it here, what an
H200 would do, and how far it is from a float64 oracle.

With a CUDA device that both frameworks see, cuDNN runs the attention, in bfloat16; everything else
stays in float32. Otherwise all of it runs on the CPU in float32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def explain_missing(error: ModuleNotFoundError) -> str:
    name = (error.name or "").partition(".")[0]
    packages = "sdpa-torch sdpa-jax torch jax nvidia-cudnn-cu13 rich matplotlib"
    return (
        f"{name} is not installed. Everything at once: python -m nox -s demo\n"
        f"or into this environment: pip install {packages}"
    )


try:
    import jax
    import numpy as np
    import torch
    from char_transformer import common, inspection, model_jax, model_torch, report

    from sdpa_core import NoBackendError, SdpaEnvironmentError
except ModuleNotFoundError as error:
    sys.exit(explain_missing(error))


@dataclass(frozen=True)
class Setting:
    """Where the frameworks run, and how well their losses must agree.

    Attributes:
        tolerance: largest difference of the two losses at any step, in nats per character.
    """

    torch_device: str
    jax_device: jax.Device
    attention_dtype: str
    tolerance: float


def setting() -> Setting:
    try:
        gpus = jax.devices("cuda")
    except RuntimeError:  # JAX's answer for a platform that it does not have
        gpus = []
    if gpus and torch.cuda.is_available():
        # A difference in the last bit of float32 can move a rounding to bfloat16, 0.4 percent wide.
        return Setting("cuda", gpus[0], "bfloat16", tolerance=5e-3)
    # Sums in another order: at most 2e-6 on the CPU, in 60 steps and in 400.
    return Setting("cpu", jax.devices("cpu")[0], "float32", tolerance=2e-5)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    try:
        plot = None if options.no_plot else import_module("char_transformer.plot")
    except ModuleNotFoundError as error:
        sys.exit(explain_missing(error))
    place = setting()
    # Float32 that means it: no TF32 in JAX (PyTorch's default), and sums in PyTorch whose order
    # does not depend on the number of cores.
    torch.set_num_threads(1)
    with jax.default_device(place.jax_device), jax.default_matmul_precision("highest"):
        failures = inspect_attention(place, options.seed)
        losses = train(place, options.steps, options.seed)
    report.heading("Loss in nats per character")
    report.curves(losses)
    failures += disagreements(losses, place.tolerance)
    if plot:
        title = f"One transformer, two frameworks: attention in {place.attention_dtype}"
        plot.save(options.out, losses, place.tolerance, title)
        report.console.print(f"curves: {options.out}")
    if failures:
        sys.exit("FAILED: " + "\nFAILED: ".join(failures))
    report.console.print("PyTorch and JAX agree.")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60, help="training steps (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches (default: 0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/demo/loss.png"),
        help="where to save the loss curves (default: build/demo/loss.png)",
    )
    parser.add_argument("--no-plot", action="store_true", help="do not save the loss curves")
    options = parser.parse_args(arguments)
    if options.steps < 2:
        parser.error(f"--steps {options.steps}: a loss needs at least 2 steps to fall")
    return options


def inspect_attention(place: Setting, seed: int) -> list[str]:
    """Show everything about one attention call of the model; returns what is wrong."""
    failures = []
    report.heading("The model's attention call, here")
    here = inspection.decisions(place.attention_dtype, place.torch_device)
    report.decisions(here)

    report.heading("The same call in bfloat16 on an H200, which need not be here")
    there = inspection.decisions("bfloat16", place.torch_device, gpu="h200")
    report.decisions(there)
    if there["PyTorch"].problem != there["JAX"].problem:
        failures.append("PyTorch and JAX describe the call differently, so they need two plans")
    report.heading("Its plans, built here by cuDNN and loaded by the native executor")
    try:
        report.plans(inspection.build_plans(there["PyTorch"]))
    except (NoBackendError, SdpaEnvironmentError) as error:
        failures.append(str(error))

    report.heading(f"Largest error against float64, {place.attention_dtype}")
    rows = inspection.errors(place.attention_dtype, place.torch_device, seed)
    report.errors(rows)
    failures += [
        f"the error of {row.tensor} is {row.share:.2f} times what is allowed"
        for row in rows
        if not row.share <= 1
    ]
    return failures


def train(place: Setting, steps: int, seed: int) -> dict[str, list[float]]:
    """The losses of all steps in each framework."""
    text = common.read_text(ROOT)
    tokens, alphabet = common.encode(text)
    weights = common.first_weights(len(alphabet), seed)
    batches = common.batches(tokens, steps, seed)
    dtype = place.attention_dtype

    size = sum(weight.size for weight in weights.values())
    report.heading(f"Training {size:,} weights on {len(text):,} characters of documentation")
    in_torch = model_torch.train(weights, batches, attention_dtype=dtype, device=place.torch_device)
    in_jax = model_jax.train(weights, batches, attention_dtype=dtype)
    return {
        "PyTorch": report.watch("PyTorch", in_torch, steps),
        "JAX": report.watch("JAX", in_jax, steps),
    }


def disagreements(losses: Mapping[str, Sequence[float]], tolerance: float) -> list[str]:
    """What is wrong with the curves: they differ, or one did not fall."""
    in_torch, in_jax = (np.array(curve) for curve in losses.values())
    differences = np.abs(in_torch - in_jax)
    step = int(np.argmax(np.nan_to_num(differences, nan=np.inf)))
    summary = (
        f"largest difference of the losses {differences[step]:.1e} (step {step + 1}), "
        f"tolerance {tolerance:.0e}"
    )
    report.console.print(summary)
    failures = [] if differences[step] <= tolerance else [summary]
    for name, curve in losses.items():
        end = float(np.mean(curve[-5:]))
        if not end < curve[0]:
            failures.append(f"the loss in {name} did not fall: {curve[0]:.4f} to {end:.4f}")
    return failures


if __name__ == "__main__":
    main()
