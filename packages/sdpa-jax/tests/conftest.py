"""Settings of JAX for the tests."""

import os

import jax
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Compile quickly on the CPU: the tests spend their time in XLA, on programs that run once."""
    if "not gpu" not in config.option.markexpr:
        return
    flags = ["--xla_backend_optimization_level=0"]
    if jax.__version_info__ < (0, 11):  # the flag is gone since, and unknown flags abort
        flags.append("--xla_cpu_use_fusion_emitters=false")
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()
