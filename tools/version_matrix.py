"""Which combinations of versions can exist. `nox -s matrix` lists exactly these.

Adding a version is one entry in a tuple below; adding an impossibility is one line in `exists`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

NEWEST = "newest"  # whatever the resolver takes on that Python

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FRONTENDS = ("1.28.0", "1.30.0", "1.32.0")
FRAMEWORKS = (
    *(("torch", version) for version in ("2.10", "2.11", "2.13", "2.14")),
    *(("jax", version) for version in ("0.8.3", "0.9.2", "0.10.2", NEWEST)),
)

# What the support matrix asks, cuDNN by cuDNN: the oldest that a supported framework brings
# (torch 2.11), and the newest.
SUPPORT_PAIRS = tuple(product(("9.19.0.56", NEWEST), (FRONTENDS[0], FRONTENDS[-1])))


def cudnn_requirement(version: str) -> str:
    """What pip is asked for."""
    return "nvidia-cudnn-cu13" if version == NEWEST else f"nvidia-cudnn-cu13=={version}"


# The last jax of a Python that newer jax releases have dropped: "newest" is that release there.
LAST_JAX = {"3.11": "0.10.2"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination: everything that decides what gets installed."""

    python: str
    frontend: str
    framework: str  # "torch" or "jax"
    version: str
    own: str  # "tree", or "release": the adapter of this tree on the last released core and ffi

    @property
    def name(self) -> str:
        """The name by which nox lists and selects it."""
        return f"py{self.python}-fe{self.frontend}-{self.framework}{self.version}-{self.own}"

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        if self.version == NEWEST:
            return self.framework
        # A two-part version is a release line; 2.13 is the exact pin of the root pyproject.toml.
        if self.version == "2.13":
            return "torch==2.13.0"
        pin = f"{self.version}.*" if self.version.count(".") == 1 else self.version
        return f"{self.framework}=={pin}"

    @property
    def in_ci(self) -> bool:
        """The oldest frontend with each framework, and the newest of all on a Python with only jax.

        The session ``tests`` has the newest frontend with both frameworks.
        """
        return (self.python, self.frontend, self.framework, self.version) in {
            ("3.11", "1.28.0", "torch", "2.13"),
            ("3.11", "1.28.0", "jax", "0.8.3"),
            ("3.12", "1.32.0", "jax", NEWEST),
        }


def exists(cell: Cell) -> bool:
    """Whether the releases named by a cell can be installed together and differ from other cells.

    Every torch and frontend release named above has wheels for every Python named above.
    """
    return not (cell.framework == "jax" and cell.version == NEWEST and cell.python in LAST_JAX)


def cells(*, released: bool) -> Iterator[Cell]:
    """All cells that can exist. `released`: whether the own packages have a release to test."""
    own = ("tree", "release") if released else ("tree",)
    for python, frontend, (framework, version), source in product(
        PYTHONS, FRONTENDS, FRAMEWORKS, own
    ):
        cell = Cell(python, frontend, framework, version, source)
        if exists(cell):
            yield cell
