"""Builds the wheel of sdpa-ffi once for a state of its sources; every nox session reuses it."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
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


#: What the native module may be linked to.
LIBRARIES = re.compile(r"lib(stdc\+\+|m|gcc_s|c)\.so\.\d+|ld-linux-.*")


def faults(wheel: Path) -> list[str]:
    """Why a wheel would not work on other machines, or tells of this one."""
    found = [] if "manylinux" in wheel.name else ["not a manylinux wheel"]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".so"))
        module = archive.extract(name, folder)
        dynamic = _output("readelf", "-d", module)
        symbols = _output("nm", "-D", "--defined-only", module)
        content = Path(module).read_bytes()
    found += [line.strip() for line in dynamic.splitlines() if "RPATH" in line or "RUNPATH" in line]
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    found += [f"linked to {library}" for library in needed if not LIBRARIES.fullmatch(library)]
    exported = [line.split()[-1] for line in symbols.splitlines()]
    if exported != ["PyInit__native"]:
        found.append(f"exports {exported}")
    if str(Path.home()).encode() + b"/" in content or str(ROOT).encode() in content:
        found.append("names a path of the machine that built it")
    return found


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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
