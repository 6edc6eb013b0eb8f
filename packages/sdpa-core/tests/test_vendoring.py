"""sdpa_core's folder, copied under another package's name, works, also beside the installed one."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sdpa_core

SOURCE = Path(sdpa_core.__file__).parent

USE = """
from importlib import import_module


def use(name):
    def get(module):
        return import_module(f"{name}.{module}")

    dtype = get("dtypes").DType.BFLOAT16
    query = get("tensor").TensorSpec.dense((2, 8, 128, 64), dtype)
    key = get("tensor").TensorSpec.dense((2, 2, 128, 64), dtype)
    problem_module = get("problem")
    problem = problem_module.AttentionProblem.of(query, key, key)
    device = get("device").DeviceSpec.named("h200", cudnn_version=92000)
    decision = get("policy").decide(problem, device, backend="reference", probe=False)
    assert decision.forward.backend == "reference", decision
    forward = problem_module.Direction.FORWARD
    fingerprint = get("fingerprint").fingerprint(problem, device, forward, "1.32.0")
    return problem, fingerprint
"""


@pytest.fixture
def vendored(tmp_path):
    """A folder with the package vendored_fw, which holds a copy as vendored_fw._sdpa_core."""
    package = tmp_path / "vendored_fw"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "use.py").write_text(USE)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, package / "_sdpa_core", ignore=ignore)
    return tmp_path


def run(code: str, folder: Path, *options: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"
    result = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_works_where_sdpa_core_is_not_installed(vendored):
    """-S: no site-packages, so no installed copy and no metadata of one."""
    code = (
        "from use import use; use('vendored_fw._sdpa_core'); assert 'sdpa_core' not in sys.modules"
    )
    run(code, vendored, "-S", "-E")


def test_works_beside_the_installed_one(vendored):
    code = """
from use import use
mine, key = use("vendored_fw._sdpa_core")
other, other_key = use("sdpa_core")
assert type(mine).__module__ == "vendored_fw._sdpa_core.problem", type(mine)
assert type(other).__module__ == "sdpa_core.problem", type(other)
assert type(mine) is not type(other)
assert mine != other          # values of one copy are strangers to the other
assert key == other_key       # but the same sources make the same plans
"""
    run(code, vendored)


def absolute_imports(path: Path) -> list[str]:
    """Places where a module names the package absolutely: a copy would import the original."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        if any(name.split(".")[0] == "sdpa_core" for name in names):
            found.append(f"{path.name}:{node.lineno}")
    return found


def test_imports_itself_relatively():
    assert not [place for path in SOURCE.rglob("*.py") for place in absolute_imports(path)]


def test_the_check_of_imports_can_fail(tmp_path):
    (tmp_path / "offender.py").write_text("def f():\n    from sdpa_core.problem import X\n")
    assert absolute_imports(tmp_path / "offender.py") == ["offender.py:2"]
