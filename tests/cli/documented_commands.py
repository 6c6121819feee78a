"""Read a documentation page's curl commands and shown answers, and run each command."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .processes import DEADLINE_S, environment

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<answer>.*)\n", re.MULTILINE)
SHOWN_URL = "http://127.0.0.1:8321"


def steps_of(page: str) -> list[tuple[str, str]]:
    text = (Path(__file__).parents[2] / "docs" / page).read_text("utf-8")
    return [(match["command"], match["answer"]) for block in BLOCK.findall(text) for match in STEP.finditer(block)]


def run_step(command: str, url: str, folder: Path) -> str:
    done = subprocess.run(
        ["sh", "-c", command.replace(SHOWN_URL, url)],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
