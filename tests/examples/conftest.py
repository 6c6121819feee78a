"""A folder in which the examples for Node run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples.example_process import EXAMPLES

INSTALL_S = 60


def missing(what: str) -> None:
    """Where CI is set everything must be there."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples for Node and their one package, beside each other."""
    if not (shutil.which("node") and shutil.which("npm")):
        missing("node and npm are not installed")
    folder = tmp_path_factory.mktemp("node")
    for example in EXAMPLES.glob("*.mjs"):
        shutil.copy(example, folder)
    words = (
        "npm install --no-audit --no-fund --prefer-offline --fetch-retries=1 --fetch-timeout=20000 standardwebhooks@1"
    )
    try:
        subprocess.run(words.split(), cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=True)
    except subprocess.SubprocessError as error:
        missing(f"npm could not install standardwebhooks: {getattr(error, 'stderr', None) or error}")
    return folder
