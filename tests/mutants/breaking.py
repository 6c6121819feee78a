"""Small deliberate breakages: each is a replacement in a copy of the tree, and tests are run on the copy."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
COPIED = (
    "actors",
    "dispatch",
    "storage",
    "src",
    "tests",
    "bench",
    "examples",
    "docs",
    "scripts",
    "zensical.toml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "pyproject.toml",
)


@dataclass(frozen=True, slots=True)
class Breakage:
    """One rule broken."""

    name: str
    file: str
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()
    """More replacements (file, old, new), where a rule is kept by two."""

    def replacements(self) -> Iterator[tuple[str, str, str]]:
        yield self.file, self.old, self.new
        yield from self.also


@dataclass(frozen=True, slots=True)
class Mutant(Breakage):
    """A breakage with the tests that must catch it."""

    tests: tuple[str, ...] = field(kw_only=True)
    """Node ids; without brackets all cases of the test."""
    may_hang: bool = field(default=False, kw_only=True)
    """Waiting for ever is what the breakage does: a run that does not end in time has caught it, too."""


def faults(one: Breakage) -> list[str]:
    """Why this breakage can no longer be made; empty if it can."""
    found = []
    for file, old, new in one.replacements():
        text = (ROOT / file).read_text("utf-8") if (ROOT / file).is_file() else ""
        if (times := text.count(old)) != 1:
            found.append(f"its text stands {times} times in {file}, not once")
        elif old == new:
            found.append(f"it changes nothing in {file}")
        else:
            compile(text.replace(old, new), file, "exec")
    return found


def broken_copy(one: Breakage, folder: Path) -> None:
    """A copy of the tree with the one rule broken."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True)  # with what is compiled: it is as old as its source
        else:
            shutil.copy(source, folder / name)
    for file, old, new in one.replacements():
        path = folder / file
        text = path.read_text("utf-8")
        found = text.count(old)
        if found != 1:
            raise click.ClickException(f"{one.name}: its text stands {found} times in {file}, not once")
        path.write_text(text.replace(old, new), "utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of pytest ended."""

    code: int | None
    """None if it did not end in time."""
    failed: tuple[str, str] | None
    """The first test that failed, and why."""
    said: str


_FAILED = re.compile(r"^FAILED [^:\n]+::(\w+(?:\[.*?\])?)(?: - (.*))?$", re.MULTILINE)


def run_tests(folder: Path, arguments: Sequence[str], limit_s: float) -> Run:
    """pytest in a copy, up to its first failure. What it has started ends with it."""
    # The copy's own package must win over the installed one. What a machine lacks is a failure there, not a skip.
    path = {"PYTHONPATH": f"{folder / 'src'}:{folder}", "PATH": "/usr/bin:/bin", "CI": "true"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line", *arguments]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return Run(None, None, said)
    failed = _FAILED.search(said)
    return Run(process.returncode, (failed[1], failed[2] or "") if failed else None, said)
