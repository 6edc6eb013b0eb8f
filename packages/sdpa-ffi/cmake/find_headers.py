# ruff: noqa: INP001 (a script)
"""Print the include folders of installed Python packages, separated by semicolons.

Reads the packages' file lists (importlib.metadata) and imports nothing: starting a framework to
learn a path would be slow, and it may not be importable where this is built.
"""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

MARKERS = ("cudnn_frontend.h", "cudnn.h", "cuda.h", "nvrtc.h", "crt/host_config.h", "nv/target")


def include_folders() -> list[str]:
    found: dict[str, None] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"] or ""
        if not name.lower().startswith("nvidia"):
            continue
        for file in distribution.files or ():
            for marker in MARKERS:
                if file.as_posix().endswith(f"include/{marker}"):
                    path = Path(str(distribution.locate_file(file))).resolve()
                    found[str(path.parents[marker.count("/")])] = None
    return [folder for folder in found if Path(folder).is_dir()]


if __name__ == "__main__":
    sys.stdout.write(";".join(include_folders()))
