"""Metadata, wheels and what the repository's files may say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from sdpa_core.config import PLAN_VARIABLES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
PURE = [path for path in PACKAGES if path.name != "sdpa-ffi"]


def run(*command: str, cwd: Path = ROOT) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_all_five_packages_are_here():
    names = [path.name for path in PACKAGES]
    assert names == ["sdpa-core", "sdpa-cutedsl", "sdpa-ffi", "sdpa-jax", "sdpa-torch"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
class TestEveryPackage:
    def test_metadata_needs_nothing_installed(self, package):
        """Also run where neither torch, jax nor the cuDNN frontend is installed."""
        pip = (sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps")
        output = run(*pip, "--no-build-isolation", str(package))
        assert f"Would install {package.name}" in output

    def test_has_its_own_papers(self, package):
        for name in ("README.md", "CHANGELOG.md", "LICENSE", "tests"):
            assert (package / name).exists()
        assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()

    def test_versions_come_from_its_own_tags(self, package):
        settings = (package / "pyproject.toml").read_text()
        assert f"--match', '{package.name}-v*'" in settings.replace('"', "'")

    def test_is_typed(self, package):
        assert (package / "src" / package.name.replace("-", "_") / "py.typed").is_file()


@pytest.mark.parametrize("package", PURE, ids=lambda path: path.name)
def test_wheel_of_a_tree_without_git(package, tmp_path):
    """An unpacked archive builds, and its wheel holds the package, the licence and no tests."""
    tree = tmp_path / "unpacked" / "packages" / package.name
    shutil.copytree(package, tree, ignore=shutil.ignore_patterns("__pycache__", "dist"))
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", cwd=tree)
    (wheel,) = (tree / "dist").glob("*.whl")
    module = package.name.replace("-", "_")
    assert wheel.name == f"{module}-0.0.0-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {module, f"{module}-0.0.0.dist-info"}
    assert f"{module}/py.typed" in names
    assert f"{module}-0.0.0.dist-info/licenses/LICENSE" in names
    assert not [name for name in names if "/tests/" in name or "test_" in name]


def test_dependencies_between_packages_point_down():
    allowed = {
        "sdpa-core": set(),
        "sdpa-ffi": {"sdpa-core"},
        "sdpa-torch": {"sdpa-core", "sdpa-ffi"},
        "sdpa-jax": {"sdpa-core", "sdpa-ffi"},
        "sdpa-cutedsl": {"sdpa-core"},
    }
    for package in PACKAGES:
        project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
        names = {re.split(r"[^\w-]", entry)[0] for entry in project.get("dependencies", [])}
        assert {name for name in names if name.startswith("sdpa-")} == allowed[package.name]


# Written in pieces, so that this file does not contain what it looks for.
MACHINE_PATHS = [f"/{root}/" for root in ("work", "root", "opt/" + "wheels", "opt/" + "pypi")]


def repository_files() -> list[Path]:
    """Text files that are, or are about to be, in the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("an unpacked archive, not a clone")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard")
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()]


def test_no_file_names_a_path_of_somebodys_machine():
    found = []
    for path in repository_files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {word}" for word in MACHINE_PATHS if word in text]
    assert not found


def test_exactly_our_environment_variables_are_documented():
    config = (ROOT / "packages/sdpa-core/src/sdpa_core/config.py").read_text()
    page = (ROOT / "docs/environment-variables.md").read_text()
    variables = set(re.findall(r"\bSDPA_[A-Z_]+\b", config))
    assert variables
    assert PLAN_VARIABLES
    documented = set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", page))
    assert documented == variables | set(PLAN_VARIABLES)


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    pages += ROOT.glob("packages/*/README.md")
    broken = []
    for page in pages:
        targets = re.findall(r"\]\((?!\w+:|#)([^)#]+)", page.read_text())
        broken += [
            f"{page.name}: {target}" for target in targets if not (page.parent / target).exists()
        ]
    assert not broken
