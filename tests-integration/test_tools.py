"""The helpers behind noxfile.py."""

from __future__ import annotations

import importlib
import sys
import threading
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import native_wheel
import release
from version_matrix import NEWEST, PYTHONS, Cell, cells, exists


class TestVersionMatrix:
    def test_names_are_unique_and_complete(self):
        found = list(cells(released=False))
        assert len({cell.name for cell in found}) == len(found)
        assert {cell.python for cell in found} == set(PYTHONS)
        assert len(found) == 4 * 3 * 8 - 3  # no "newest" jax of its own on 3.11

    def test_newest_jax_is_not_listed_twice(self):
        assert not exists(Cell("3.11", "1.32.0", "jax", NEWEST, "tree"))
        assert exists(Cell("3.12", "1.32.0", "jax", NEWEST, "tree"))
        assert exists(Cell("3.11", "1.32.0", "jax", "0.10.2", "tree"))

    def test_a_release_doubles_the_matrix(self):
        assert len(list(cells(released=True))) == 2 * len(list(cells(released=False)))

    @pytest.mark.parametrize(
        ("framework", "version", "requirement"),
        [
            ("torch", "2.13", "torch==2.13.0"),
            ("torch", "2.10", "torch==2.10.*"),
            ("jax", "0.8.3", "jax==0.8.3"),
            ("jax", NEWEST, "jax"),
        ],
    )
    def test_requirement(self, framework, version, requirement):
        assert Cell("3.12", "1.32.0", framework, version, "tree").requirement == requirement

    def test_ci_runs_both_ends_of_the_frontend_and_a_second_python(self):
        chosen = [cell for cell in cells(released=False) if cell.in_ci]
        assert {cell.frontend for cell in chosen} == {"1.28.0", "1.32.0"}
        assert {cell.python for cell in chosen} == {"3.11", "3.12"}
        assert {cell.framework for cell in chosen if cell.python != "3.11"} == {"jax"}


class TestNativeWheel:
    @pytest.fixture
    def package(self, tmp_path):
        package = tmp_path / "package"
        (package / "src" / "cpp").mkdir(parents=True)
        (package / "pyproject.toml").write_text("[project]")
        (package / "src" / "cpp" / "a.cc").write_text("int a;")
        return package

    def test_key_follows_sources_and_tag_only(self, package):
        key = native_wheel.source_key(package)
        (package / "tests").mkdir()
        (package / "tests" / "test_a.py").write_text("")
        (package / "README.md").write_text("")
        assert native_wheel.source_key(package) == key
        assert native_wheel.source_key(package, "sdpa-ffi-v1.0.0") != key
        (package / "src" / "cpp" / "a.cc").write_text("int b;")
        assert native_wheel.source_key(package) != key

    def test_a_renamed_file_changes_the_key(self, package):
        key = native_wheel.source_key(package)
        (package / "src" / "cpp" / "a.cc").rename(package / "src" / "cpp" / "b.cc")
        assert native_wheel.source_key(package) != key

    @pytest.mark.parametrize(
        ("wheel", "python", "fits"),
        [
            ("sdpa_ffi-0.1-py3-none-any.whl", "3.13", True),
            ("sdpa_ffi-0.1-cp312-abi3-linux_{machine}.whl", "3.13", True),
            ("sdpa_ffi-0.1-cp312-abi3-linux_{machine}.whl", "3.11", False),
            ("sdpa_ffi-0.1-cp311-cp311-linux_{machine}.whl", "3.11", True),
            ("sdpa_ffi-0.1-cp311-cp311-linux_{machine}.whl", "3.12", False),
        ],
    )
    def test_a_wheel_of_another_python_is_not_taken(self, tmp_path, wheel, python, fits):
        import platform

        (tmp_path / wheel.format(machine=platform.machine())).touch()
        assert (native_wheel.find_wheel(tmp_path, python) is not None) == fits

    def test_two_callers_build_once(self, package, tmp_path):
        builds = []

        def build(interpreter, package, folder):
            builds.append(interpreter)
            (folder / "sdpa_ffi-0.1-py3-none-any.whl").touch()

        def caller():
            native_wheel.ensure_wheel(
                "python", "3.12", package=package, cache=tmp_path / "cache", tag="", build=build
            )

        threads = [threading.Thread(target=caller) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert builds == ["python"]

    def test_a_build_without_a_wheel_is_an_error(self, package, tmp_path):
        with pytest.raises(RuntimeError, match="left no wheel"):
            native_wheel.ensure_wheel(
                *("python", "3.12"),
                package=package,
                cache=tmp_path / "cache",
                tag="",
                build=lambda *_: None,
            )


class TestRelease:
    def test_tag(self):
        assert release.parse("sdpa-core-v1.2.3") == ("sdpa-core", "1.2.3")

    @pytest.mark.parametrize(
        "tag", ["v1.2.3", "sdpa-core-1.2.3", "sdpa-other-v1.0.0", "sdpa-core-v"]
    )
    def test_other_tags_are_refused(self, tag):
        with pytest.raises(ValueError, match="is no release tag"):
            release.parse(tag)

    def test_files_of_another_version_are_named(self, tmp_path):
        (tmp_path / "sdpa_core-1.2.3-py3-none-any.whl").touch()
        (tmp_path / "sdpa_core-1.2.4.dev1.tar.gz").touch()
        (tmp_path / "sdpa_ffi-9.9.9.tar.gz").touch()
        problems = release.problems("sdpa-core", "1.2.3", tmp_path, "## [1.2.3] - 2026-01-01\n")
        assert problems == ["sdpa_core-1.2.4.dev1.tar.gz is not version 1.2.3"]

    def test_missing_files_and_notes_are_named(self, tmp_path):
        problems = release.problems("sdpa-core", "1.2.3", tmp_path, "## [Unreleased]\n")
        assert problems == [
            "no wheel of sdpa-core",
            "no sdist of sdpa-core",
            "CHANGELOG.md has no section for 1.2.3",
        ]


@pytest.mark.parametrize(
    ("platform", "faults"),
    [("manylinux_2_34_x86_64", []), ("linux_x86_64", ["not a manylinux wheel"])],
)
def test_what_makes_the_native_wheel_portable(tmp_path, platform, faults):
    native = pytest.importorskip("sdpa_ffi._native")
    wheel = tmp_path / f"sdpa_ffi-1.0-cp311-abi3-{platform}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(native.__file__, "sdpa_ffi/_native.abi3.so")
    assert native_wheel.faults(wheel) == faults


def test_a_module_that_is_linked_to_others_is_not_portable(tmp_path):
    other = importlib.import_module("numpy._core._multiarray_umath").__file__
    wheel = tmp_path / "sdpa_ffi-1.0-cp311-abi3-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(other, "sdpa_ffi/_native.so")
    assert "exports" in "; ".join(native_wheel.faults(wheel))
