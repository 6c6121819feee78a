"""The root folders are subpackages of `tocsin`: the tables that say so, the links that show it to static tools."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("actors", "dispatch", "storage")
DATA = (".css", ".html", ".js", ".json", ".svg")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]


def packages() -> Iterator[tuple[str, str]]:
    """Every folder with an `__init__.py`: its import name and where it lies."""
    for base, prefix in ((ROOT / "src", ""), *((ROOT / room, f"tocsin.{room}") for room in ROOMS)):
        for init in base.rglob("__init__.py"):
            folder = init.parent
            if base.name == "src" and set(folder.relative_to(base).parts[1:]) & set(ROOMS):
                continue  # a link, or what lies behind it
            inner = ".".join(folder.relative_to(base).parts)
            yield ".".join(filter(None, (prefix, inner))), folder.relative_to(ROOT).as_posix()


def test_every_subpackage_is_in_both_tables() -> None:
    found = dict(packages())

    assert len(found) > len(ROOMS)
    assert sorted(SETUPTOOLS["packages"]) == sorted(found)
    assert SETUPTOOLS["package-dir"] == found


@pytest.mark.parametrize("room", ROOMS)
def test_links_in_src_point_to_the_root_folders(room: str) -> None:
    link = ROOT / "src" / "tocsin" / room

    assert link.is_symlink(), "without links static tools see nothing; on Windows: git config core.symlinks true"
    assert os.readlink(link) == f"../../{room}"


def test_no_file_is_two_modules() -> None:
    """Types, module state and coverage all break when `actors.host` lives beside `tocsin.actors.runtime.host`."""
    for room in ROOMS:
        import_module(f"tocsin.{room}")

    assert not [name for name in sys.modules if name.partition(".")[0] in ROOMS]


def test_the_installed_metadata_is_what_pyproject_says() -> None:
    dist, project = distribution("tocsin"), PYPROJECT["project"]

    assert dist.version == project["version"]
    assert dist.metadata["Requires-Python"] == ">=3.11"
    assert dist.metadata["License-Expression"] == "Apache-2.0"
    assert {(entry.group, entry.name, entry.value) for entry in dist.entry_points} == {
        ("console_scripts", "tocsin", "tocsin.cli:main"),
        ("pytest11", "tocsin", "tocsin.pytest_plugin"),
    }
    assert set(dist.metadata.get_all("Provides-Extra") or ()) == set(project["optional-dependencies"])


def test_the_license_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()

    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_speaks_of_this_version() -> None:
    assert PYPROJECT["project"]["version"] in (ROOT / "CHANGELOG.md").read_text()


def test_types_are_shipped() -> None:
    assert (ROOT / "src" / "tocsin" / "py.typed").is_file()
    assert SETUPTOOLS["package-data"]["tocsin"] == ["py.typed"]


def test_data_is_shipped() -> None:
    data = {
        str(path.relative_to(ROOT))
        for room in ("actors", "dispatch", "storage")
        for path in (ROOT / room).rglob("*")
        if path.suffix in DATA
    }
    shipped = {
        str(path.relative_to(ROOT))
        for name, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for path in (ROOT / SETUPTOOLS["package-dir"][name]).glob(pattern)
    }

    assert shipped - {"src/tocsin/py.typed"} == data
