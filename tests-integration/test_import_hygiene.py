"""What importing a package brings into the process, and that the check would notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FRAMEWORKS = {"torch", "jax", "jaxlib"}
HEAVY = {*FRAMEWORKS, "numpy", "cudnn"}

# What must not be in sys.modules after importing each package.
FORBIDDEN = {
    "sdpa_core": HEAVY,
    "sdpa_ffi": HEAVY,
    "sdpa_cutedsl": HEAVY,
    # sympy comes with torch._dynamo, which takes seconds and is for torch.compile.
    "sdpa_torch": {"jax", "jaxlib", "cudnn", "sympy"},
    "sdpa_jax": {"torch", "cudnn"},
}


def brought_in(module: str, *, path: Path | None = None) -> set[str]:
    """The top-level modules that `import module` loads in a new process."""
    code = (
        "import sys, json; before = set(sys.modules)\n"
        f"import {module}\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))"
    )
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize("package", FORBIDDEN)
def test_import_of(package):
    loaded = brought_in(package)
    assert package in loaded
    assert not loaded & FORBIDDEN[package]


@pytest.mark.parametrize("module", sorted(HEAVY))
def test_the_check_can_fail(module, tmp_path):
    """A package that imports the module, directly or through another one, is noticed."""
    (tmp_path / f"{module}.py").write_text("")
    (tmp_path / "helper.py").write_text(f"import {module}\n")
    (tmp_path / "offender.py").write_text("import helper\n")
    assert module in brought_in("offender", path=tmp_path)


def test_the_check_does_not_always_fail(tmp_path):
    (tmp_path / "innocent.py").write_text("import json\n")
    assert not brought_in("innocent", path=tmp_path) & HEAVY
