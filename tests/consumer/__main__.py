"""Check the consumer's app with strict type checkers against an installed tocsin: `python -m tests.consumer PYTHON`.

`PYTHON` is the interpreter of an environment that tocsin was installed into, from its wheel and without the sources.
Each checker must find nothing in `app.py`, and in `wrong.py` exactly the lines that say so.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

HERE: Final = Path(__file__).parent
FILES: Final = ("app.py", "wrong.py")
EXPECTED: Final = "# wrong"
MYPY_SAID: Final = re.compile(r"(?P<file>\w+\.py):(?P<line>\d+): error: (?P<said>.*)")

Found = dict[str, dict[int, str]]
"""By file and line, what a checker says."""


def by_mypy(python: Path, folder: Path) -> Found:
    """Return what mypy finds, strictly."""
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--no-error-summary"]
    said = _said([*command, "--config-file=", "--cache-dir", str(folder / "mypy"), *FILES], folder)
    found: Found = {}
    for line in said.splitlines():
        if (match := MYPY_SAID.match(line)) is not None:
            found.setdefault(match["file"], {})[int(match["line"])] = match["said"]
        elif ": note: " not in line:
            sys.exit(f"mypy: {line}")
    return found


def by_pyright(python: Path, folder: Path) -> Found:
    """Return what pyright's rules find, strictly."""
    settings = {"typeCheckingMode": "strict", "include": list(FILES)}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", str(python), "--outputjson"]
    report = json.loads(_said(command, folder))
    found: Found = {}
    for one in report["generalDiagnostics"]:
        if one["severity"] in ("error", "warning"):
            line = one["range"]["start"]["line"] + 1
            found.setdefault(Path(one["file"]).name, {})[line] = one["message"]
    if report["summary"]["filesAnalyzed"] < len(FILES):
        sys.exit(f"pyright looked at {report['summary']['filesAnalyzed']} files")
    return found


def _said(command: list[str], folder: Path) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return ran.stdout or sys.exit(f"{command[2]} says nothing: {ran.stderr}")


def faults(found: Found, folder: Path) -> list[str]:
    """Compare what was found with what the lines say."""
    said = []
    for file in FILES:
        lines = (folder / file).read_text().splitlines()
        wanted = {number for number, line in enumerate(lines, 1) if line.endswith(EXPECTED)}
        there = found.get(file, {})
        said += [f"{file}:{line}: {there[line]}" for line in sorted(there.keys() - wanted)]
        said += [f"{file}:{line}: nothing is found wrong" for line in sorted(wanted - there.keys())]
    return said


CHECKERS: Final[dict[str, Callable[[Path, Path], Found]]] = {"mypy": by_mypy, "pyright": by_pyright}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.consumer", description=__doc__)
    parser.add_argument("python", type=Path, help="of the environment that tocsin is installed in")
    python = parser.parse_args().python.absolute()
    failed = False
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file in FILES:
            shutil.copy(HERE / file, folder)
        for checker, check in CHECKERS.items():
            said = faults(check(python, folder), folder)
            failed |= bool(said)
            print("\n".join([f"{checker}: {len(said)} faults", *said]))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
