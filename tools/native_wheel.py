"""Builds the wheel of sdpa-ffi once for a state of its sources; every nox session reuses it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from filelock import FileLock
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "packages" / "sdpa-ffi"
CACHE = ROOT / ".nox" / "wheels"

# These do not decide what is in the wheel; everything else in the package does.
OUTSIDE = {"tests", "build", "dist", "__pycache__", "README.md", "CHANGELOG.md"}
PRODUCTS = {".so", ".pyc", ".whl"}

Build = Callable[[str, Path, Path], None]


def input_files(package: Path = PACKAGE) -> Iterator[Path]:
    """The files of the package that decide what is in its wheel, in a fixed order."""
    for path in sorted(package.rglob("*")):
        inside = not OUTSIDE.intersection(path.relative_to(package).parts)
        if inside and path.suffix not in PRODUCTS and path.is_file():
            yield path


def release_tag(root: Path = ROOT) -> str:
    """The release tag at HEAD, or "". Its name decides the version inside the wheel."""
    command = ["git", "describe", "--tags", "--exact-match", "--match", "sdpa-ffi-v*"]
    try:
        result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git: an unpacked archive
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def has_releases(packages: Iterable[str], root: Path = ROOT) -> bool:
    """Whether every package has a release tag."""
    try:
        result = subprocess.run(
            ["git", "tag", "--list", "sdpa-*-v*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return False
    tags = result.stdout.split()
    return all(any(tag.startswith(f"{name}-v") for tag in tags) for name in packages)


def source_key(package: Path = PACKAGE, tag: str = "") -> str:
    """A hash that changes when the wheel would."""
    digest = hashlib.sha256(tag.encode())
    for path in input_files(package):
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def tags_of(python: str) -> set[Tag]:
    """The wheel tags that a CPython like "3.12" accepts on this platform."""
    major, minor = (int(part) for part in python.split(".")[:2])
    version = (major, minor)
    return {*cpython_tags(version), *compatible_tags(version, f"cp{major}{minor}")}


def find_wheel(folder: Path, python: str) -> Path | None:
    """The newest wheel in `folder` that the given Python can install."""
    accepted = tags_of(python)
    wheels = [p for p in folder.glob("*.whl") if accepted & parse_wheel_filename(p.name)[3]]
    return max(wheels, key=lambda path: path.stat().st_mtime, default=None)


def pip_wheel(interpreter: str, package: Path, folder: Path) -> None:
    """Build with isolation. The output goes to a file, shown when the build fails."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    command = [
        interpreter,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "-v",
        "-w",
        str(folder),
        str(package),
    ]
    with log.open("w") as stream:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    if result.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()
        print("\n".join(lines[-80:]), file=sys.stderr)
        raise RuntimeError(f"building sdpa-ffi failed; the whole log is in {log}")


def ensure_wheel(
    interpreter: str,
    python: str,
    *,
    package: Path = PACKAGE,
    cache: Path = CACHE,
    tag: str | None = None,
    build: Build = pip_wheel,
) -> Path:
    """The path of a wheel of the current sources for `python`; built with `interpreter` if needed.

    Safe to call from several processes at once: one builds, the others wait and take its wheel.
    """
    folder = cache / source_key(package, release_tag() if tag is None else tag)
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{folder.name}.lock"):
        wheel = find_wheel(folder, python)
        if wheel is None:
            build(interpreter, package, folder)
            wheel = find_wheel(folder, python)
        if wheel is None:
            raise RuntimeError(f"the build left no wheel for Python {python} in {folder}")
        return wheel
