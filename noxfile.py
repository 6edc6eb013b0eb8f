"""What is run on this repository: `nox -l` lists it, and CI tests with nothing else.

pip is the installer, so that its configuration (a local CPU wheel of torch, a mirror) is honoured.
"""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import nox

if sys.version_info < (3, 11):  # noqa: UP036  (nox itself runs on older Pythons)
    sys.exit(f"sdpa needs Python 3.11 or newer; nox runs on {sys.version.split()[0]}")

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

import native_wheel  # noqa: E402
import version_matrix  # noqa: E402

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["tests", "lint", "types", "imports"]

PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
DIST = ROOT / "dist"
CORE, FFI, TORCH, JAX, CUTEDSL = PACKAGES = (
    "sdpa-core",
    "sdpa-ffi",
    "sdpa-torch",
    "sdpa-jax",
    "sdpa-cutedsl",
)
# What each package needs from this repository, itself included, in the order of dependence.
CLOSURE = {
    CORE: (CORE,),
    FFI: (CORE, FFI),
    TORCH: (CORE, FFI, TORCH),
    JAX: (CORE, FFI, JAX),
    CUTEDSL: (CORE, CUTEDSL),
}


def group(*names: str) -> list[str]:
    """The requirements of dependency groups of the root pyproject.toml."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def python_of(session: nox.Session) -> str:
    """The Python of a session's environment, like "3.12"."""
    if isinstance(session.python, str):
        return session.python
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def interpreter_of(session: nox.Session) -> str:
    """The interpreter of a session's environment."""
    found = shutil.which("python", path=os.pathsep.join(session.virtualenv.bin_paths or ()))
    return found or sys.executable


@contextmanager
def native_build(session: nox.Session, packages: Sequence[str]) -> Iterator[Future[Path] | None]:
    """Build sdpa-ffi's wheel in the background if it is wanted and not there already."""
    if FFI not in packages:
        yield None
        return
    with ThreadPoolExecutor(max_workers=1) as pool:
        yield pool.submit(native_wheel.ensure_wheel, interpreter_of(session), python_of(session))


def install(
    session: nox.Session,
    *requirements: str,
    packages: tuple[str, ...],
    frontend: str | None = None,
) -> None:
    """Install third parties in one resolution, then the frontend and our packages without deps.

    Whatever is installed later goes without dependencies, so nothing can replace torch's build.
    """
    with native_build(session, packages) as wheel:
        session.install(*dict.fromkeys([*group("build"), *requirements]))
        if frontend is not None:
            session.install("--no-deps", frontend)
        editable = [f"-e{ROOT / 'packages' / name}" for name in packages if name != FFI]
        native = [str(wheel.result())] if wheel else []
    if native:
        # A wheel of changed sources may have the version of the one before.
        session.install("--no-deps", "--force-reinstall", *native)
    session.install("--no-deps", "--no-build-isolation", *editable)


# ------------------------------------------------------------------------------------- tests


@nox.session
def tests(session: nox.Session) -> None:
    """All CPU tests of all packages, torch and jax together (`-- ARGUMENTS`: pytest's)."""
    install(
        session,
        *group("test", "frameworks", "cudnn"),
        packages=PACKAGES,
        frontend=group("frontend")[0],
    )
    # The conformance suites take most of the time; a class of tests stays in one process.
    everything = ("-n", str(min(os.cpu_count() or 1, 8)), "--dist", "loadscope")
    session.run("python", "-m", "pytest", *(session.posargs or everything))
    if not session.posargs:
        session.notify("alone_core")
        session.notify("alone_jax")


@nox.session
def alone_core(session: nox.Session) -> None:
    """sdpa-core with nothing else installed: imports, can be vendored."""
    session.install(*group("dist"), "pytest>=9")
    session.install("--no-deps", "--no-build-isolation", f"-e{ROOT / 'packages' / CORE}")
    session.run(
        *("python", "-m", "pytest", "-p", "no:cacheprovider"),
        "tests-integration/test_import_hygiene.py",
        "tests-integration/test_packaging.py",
        "packages/sdpa-core/tests/test_vendoring.py",
        *("-k", "not import_of or sdpa_core"),
    )


@nox.session
def alone_jax(session: nox.Session) -> None:
    """sdpa-jax in an environment without torch."""
    install(session, *group("test", "jax"), packages=CLOSURE[JAX], frontend=group("frontend")[0])
    session.run(
        *("python", "-m", "pytest", "-p", "no:cacheprovider", "-m", "not gpu and not slow"),
        "tests-integration/test_import_hygiene.py",
        "tests-integration/test_versions.py",
        *("-k", "not import_of or sdpa_jax or sdpa_ffi"),
    )


@nox.session(python=["3.11", "3.12", "3.13"])
def alone_ffi(session: nox.Session) -> None:
    """The wheel of sdpa-ffi on several Pythons, without CUDA: it imports and explains itself."""
    with native_build(session, [CORE, FFI]) as wheel:
        session.install(*group("dist"))
    session.install("--no-deps", "--no-build-isolation", f"-e{ROOT / 'packages' / CORE}")
    session.install("--no-deps", str(wheel.result()))
    session.run("python", "-c", "import sdpa_ffi; print(sdpa_ffi.build_info())")
    session.run("python", "-m", "sdpa_ffi", "doctor", success_codes=[0, 1])  # 1: no GPU


@nox.session
def native(session: nox.Session) -> None:
    """The C++ tests of sdpa-ffi under sanitizers (needs doctest: apt-get install doctest-dev)."""
    folder = ROOT / "packages" / FFI
    requires = nox.project.load_toml(folder / "pyproject.toml")["build-system"]["requires"]
    session.install(*requires, "cmake", "ninja")
    with session.chdir(folder):
        for preset in session.posargs or ("address", "thread"):
            session.run("cmake", "--workflow", "--preset", preset)


# ------------------------------------------------------------------------------------- checks


@nox.session
def lint(session: nox.Session) -> None:
    """Formatting and lint of Python, C++ and project metadata (`-- --fix` repairs what it can)."""
    session.install(*group("lint"))
    fix = "--fix" in session.posargs
    session.run("ruff", "format", *([] if fix else ["--check"]))
    session.run("ruff", "check", *(["--fix"] if fix else []))
    native = ROOT / "packages" / FFI
    sources = sorted(
        str(path.relative_to(ROOT))
        for folder in ("src", "tests")
        for suffix in ("h", "cc")
        for path in (native / folder).rglob(f"*.{suffix}")
    )
    if sources:
        session.run("clang-format", *(["-i"] if fix else ["--dry-run", "-Werror"]), *sources)
    projects = sorted(
        str(path.relative_to(ROOT)) for path in ROOT.glob("packages/*/pyproject.toml")
    )
    session.run("validate-pyproject", "pyproject.toml", *projects)
    session.run("zizmor", "--offline", "--quiet", "--no-progress", ".github")


@nox.session
def types(session: nox.Session) -> None:
    """Strict mypy, without any framework installed."""
    session.install(*group("types"))
    session.run("mypy", *session.posargs)


@nox.session
def imports(session: nox.Session) -> None:
    """The import contracts between the packages."""
    session.install(*group("imports"))
    folders = (str(ROOT / "packages" / name / "src") for name in PACKAGES)
    session.run("lint-imports", env={"PYTHONPATH": os.pathsep.join(folders)})


# ------------------------------------------------------------------------------------- products


@nox.session
def build(session: nox.Session) -> None:
    """Make wheels and sdists in dist/, check them, install each one alone (`-- PACKAGE ...`)."""
    chosen = tuple(session.posargs) or PACKAGES
    needed = [name for name in PACKAGES if any(name in CLOSURE[package] for package in chosen)]
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with native_build(session, needed) as wheel:
        session.install(*group("dist"))
        for name in needed:
            folder = ROOT / "packages" / name
            if name == FFI:
                command = ("-m", "build", "--sdist", "--no-isolation", "--skip-dependency-check")
                session.run("python", *command, "-o", str(DIST), str(folder), silent=True)
            else:
                with session.chdir(folder):
                    session.run("python", "-m", "hatchling", "build", "-d", str(DIST), silent=True)
        if wheel:
            # Only the tag changes: nothing outside of manylinux is linked.
            session.run("auditwheel", "repair", "-w", str(DIST), str(wheel.result()), silent=True)
    for path in sorted(DIST.glob("*.whl")):
        check_wheel(session, path)
    rebuild_from_sdists(session)
    session.log("built: " + ", ".join(sorted(path.name for path in DIST.iterdir())))
    for package in chosen:
        install_alone(session, package)


def check_wheel(session: nox.Session, path: Path) -> None:
    """A wheel has its package, its type marker and its licence, and nothing else on top level."""
    package = path.name.split("-")[0]
    names = zipfile.ZipFile(path).namelist()
    if f"{package}/py.typed" not in names:
        session.error(f"{path.name} has no {package}/py.typed")
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        session.error(f"{path.name} has no licence text")
    strangers = {name.split("/")[0] for name in names} - {package}
    strangers = {name for name in strangers if not name.endswith(".dist-info")}
    inner = [name for name in names if "/tests/" in name or name.endswith((".cc", ".h"))]
    if strangers or inner:
        session.error(f"{path.name} also holds {sorted(strangers) + inner}")
    if package == "sdpa_ffi" and (faults := native_wheel.faults(path)):
        session.error(f"{path.name}: {'; '.join(faults)}")


def rebuild_from_sdists(session: nox.Session) -> None:
    """An sdist outside of git gives the same wheel. sdpa-ffi's would be a second compilation."""
    folder = Path(session.create_tmp()) / "from-sdist"
    shutil.rmtree(folder, ignore_errors=True)
    sdists = [str(path) for path in DIST.glob("*.tar.gz") if not path.name.startswith("sdpa_ffi")]
    pip = ("python", "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index")
    session.run(*pip, "-w", str(folder), *sdists)
    for wheel in folder.glob("*.whl"):
        names = [zipfile.ZipFile(path).namelist() for path in (wheel, DIST / wheel.name)]
        if sorted(names[0]) != sorted(names[1]):
            session.error(f"{wheel.name} from the sdist is not what the tree gives")


def install_alone(session: nox.Session, package: str) -> None:
    """Install one wheel, and by itself what it requires, into a new environment; import it."""
    environment = Path(session.create_tmp()) / package
    session.run(
        *(sys.executable, "-m", "virtualenv", "-q", "--clear", str(environment)), external=True
    )
    python = str(environment / "bin" / "python")
    # Exact versions of ours: they are pre-releases, and an index must not offer others.
    # frontend 1.28.0 does not require the CuTe DSL wheels, see "frontend" in pyproject.toml.
    pins = [f"{p.name.split('-')[0]}=={p.name.split('-')[1]}" for p in DIST.glob("*.whl")]
    constraints = environment / "constraints.txt"
    constraints.write_text("\n".join([*pins, "nvidia-cudnn-frontend==1.28.0"]))
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    if package == TORCH:
        session.run(*pip, *group("torch"), external=True)
    ours = ("--find-links", str(DIST), "--constraint", str(constraints))
    session.run(*pip, *ours, package, external=True)
    module = package.replace("-", "_")
    code = f"import {module}; print({module}.__name__, 'imports alone')"
    session.run(python, "-c", code, external=True)
    if package == TORCH and any(DIST.glob("sdpa_jax-*.whl")):
        session.run(*pip, *ours, "--dry-run", TORCH, JAX, external=True)
    shutil.rmtree(environment, ignore_errors=True)


@nox.session
def support_matrix(session: nox.Session) -> None:
    """Ask the rules and cuDNN about every problem, for pairs of versions; write the page."""
    install(session, *group("test", "cudnn"), packages=(CORE,), frontend=group("frontend")[0])
    folder = Path(session.create_tmp())
    module = ("python", "-m", "support_matrix")
    env = {"PYTHONPATH": str(ROOT / "tests-integration")}
    files = []
    for cudnn, frontend in version_matrix.SUPPORT_PAIRS:
        pins = [f"nvidia-cudnn-frontend=={frontend}", version_matrix.cudnn_requirement(cudnn)]
        session.install("--no-deps", "--upgrade", *pins)
        files.append(str(folder / f"cudnn-{cudnn}-frontend-{frontend}.jsonl"))
        # Disagreements (1) of all pairs are told by the page.
        ask = (*module, "ask", "--out", files[-1])
        session.run(*ask, *session.posargs, env=env, success_codes=[0, 1])
    session.run(*module, "page", *files, "--out", "docs/support-matrix.md", env=env)


@nox.session
def demo(session: nox.Session) -> None:
    """Train one small model in PyTorch and in JAX and compare (arguments: the script's)."""
    install(
        session, *group("demo"), packages=CLOSURE[TORCH] + (JAX,), frontend=group("frontend")[0]
    )
    session.run("python", "docs/examples/train_char_transformer.py", *session.posargs)


# ------------------------------------------------------------------------------------- versions
# Last, because `nox -l` shows sessions in this order and this one has many lines.


@nox.session
@nox.parametrize(
    "python,cell",
    [
        nox.param(cell.python, cell, id=cell.name, tags=["ci"] if cell.in_ci else [])
        for cell in version_matrix.cells(released=native_wheel.has_releases(PACKAGES))
    ],
)
def matrix(session: nox.Session, cell: version_matrix.Cell) -> None:
    """One combination of versions; `nox -t ci` runs those that CI does."""
    adapter = TORCH if cell.framework == "torch" else JAX
    install(
        session,
        *group("test", "cudnn"),
        cell.requirement,
        packages=CLOSURE[adapter] if cell.own == "tree" else (adapter,),
        frontend=f"nvidia-cudnn-frontend=={cell.frontend}",
    )
    if cell.own == "release":
        session.install("--no-deps", "--only-binary=:all:", CORE, FFI)
    session.run(
        *("python", "-m", "pytest", "-p", "no:cacheprovider", "-m", "not gpu and not slow"),
        "tests-integration/test_versions.py",
        *session.posargs,
    )
    if cell.own == "tree":
        # One GPU's plans, of the graphs that differ most: the frontend is what varies here.
        session.run(
            *("python", "-m", "pytest", "-p", "no:cacheprovider", "-m", "not gpu and not slow"),
            "tests-integration/test_plans_for_every_gpu.py",
            *("-k", "h200 and (plain or half_empty_key_tile or deterministic_decode)"),
        )
