"""What importing and calling the package brings into a process."""

import subprocess
import sys

import pytest

CALL = """
import jax.numpy as jnp
x = jnp.ones((1, 4, 1, 8))
sdpa_jax.dot_product_attention(x, x, x)
"""


def loaded(code: str, module: str) -> bool:
    check = f"import sys\n{code}\nprint({module!r} in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.split()[-1] == "True"


@pytest.mark.parametrize("module", ["torch", "cudnn", "sdpa_torch"])
def test_absent(module: str) -> None:
    assert not loaded(f"import sdpa_jax\n{CALL}", module)


def test_the_check_can_fail() -> None:
    assert loaded("import sdpa_jax, json", "json")
    assert loaded("sys.modules['torch'] = sys", "torch")
