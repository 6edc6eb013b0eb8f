"""Checks that what is about to be released is what the tag says: `release.py TAG DIST`.

Prints the package's name as `package=...` for the workflow that calls it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TAG = re.compile(r"(sdpa-(?:core|ffi|torch|jax|cutedsl))-v(\d.*)")


def parse(tag: str) -> tuple[str, str]:
    """The package and version of a release tag."""
    match = TAG.fullmatch(tag)
    if match is None:
        raise ValueError(f"{tag!r} is no release tag, which looks like sdpa-core-v1.2.3")
    return match[1], match[2]


def problems(package: str, version: str, dist: Path, changelog: str) -> list[str]:
    """Everything that forbids releasing the package's files in `dist` under this version."""
    stem = package.replace("-", "_")
    wheels = sorted(dist.glob(f"{stem}-*.whl"))
    sdists = sorted(dist.glob(f"{stem}-*.tar.gz"))
    found = []
    if not wheels:
        found.append(f"no wheel of {package}")
    if not sdists:
        found.append(f"no sdist of {package}")
    for path in (*wheels, *sdists):
        built = path.name.removesuffix(".tar.gz").split("-")[1]
        if built != version:
            found.append(f"{path.name} is not version {version}")
    if f"## [{version}]" not in changelog:
        found.append(f"CHANGELOG.md has no section for {version}")
    return found


def main(tag: str, dist: str | None = None) -> int:
    """Without a folder, only the tag is read."""
    package, version = parse(tag)
    print(f"package={package}")
    if dist is None:
        return 0
    changelog = (ROOT / "packages" / package / "CHANGELOG.md").read_text()
    found = problems(package, version, Path(dist), changelog)
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
