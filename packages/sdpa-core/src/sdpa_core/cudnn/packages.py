"""Names of cuDNN's packages on PyPI: one for each major version of CUDA."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

#: The newest first.
_NAMES = {13: "nvidia-cudnn-cu13", 12: "nvidia-cudnn-cu12"}


@cache
def installed() -> str | None:
    """The package that is installed; None if none is, or several, so that CUDA is not known."""
    found = [name for name in _NAMES.values() if _is_installed(name)]
    return found[0] if len(found) == 1 else None


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


@cache
def frontend_version() -> str | None:
    """Version of nvidia-cudnn-frontend as pip knows it; None if it is not what would be imported.

    Importing it to ask loads cuDNN, which a process that finds its plans in the store need not do.
    """
    try:
        found = distribution("nvidia-cudnn-frontend")
    except PackageNotFoundError:
        return None
    module = find_spec("cudnn")
    here = str(found.locate_file("cudnn/__init__.py"))
    return found.version if module is not None and module.origin == here else None


def pip_install(arguments: str) -> str:
    """A command that installs cuDNN: ``arguments`` with ``{cudnn}`` replaced by its package.

    Where the version of CUDA is not known, a command for each.
    """
    name = installed()
    if name is not None:
        return f"pip install {arguments.format(cudnn=name)}"
    newest, *older = (
        (cuda, f"pip install {arguments.format(cudnn=name)}") for cuda, name in _NAMES.items()
    )
    return ", or ".join((newest[1], *(f"with CUDA {cuda} {command}" for cuda, command in older)))
