"""What people import is what is written down, and can be had."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tocsin


@pytest.mark.parametrize("name", tocsin.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tocsin, name).__name__ == name


def test_type_checkers_see_the_same_names_from_the_same_modules() -> None:
    (block,) = [one for one in ast.parse(Path(tocsin.__file__).read_text()).body if isinstance(one, ast.If)]
    imports = [one for one in block.body if isinstance(one, ast.ImportFrom)]

    assert {name.asname: one.module for one in imports for name in one.names} == tocsin._HOMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = tocsin.nothing


def test_importing_the_package_loads_no_room() -> None:
    code = "import sys, tocsin; print([m for m in sys.modules if m.startswith('tocsin.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"


def test_a_host_that_has_its_store_alone_loads_nothing_of_clusters() -> None:
    rooms = ("tocsin.actors.cluster", "tocsin.storage.ownership", "tocsin.storage.postgres")
    code = f"import sys; from tocsin import ActorHost; print([m for m in sys.modules if m.startswith({rooms})])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "['tocsin.actors.cluster', 'tocsin.actors.cluster.composition']"
