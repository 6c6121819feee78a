"""What people import is what is written down, and can be had."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tocsin


@pytest.mark.parametrize("name", tocsin.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tocsin, name).__name__ == name


def test_the_list_of_homes_is_the_list_of_names() -> None:
    assert sorted(tocsin._HOMES) == tocsin.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = tocsin.nothing


def test_importing_the_package_loads_no_room() -> None:
    code = "import sys, tocsin; print([m for m in sys.modules if m.startswith('tocsin.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"
