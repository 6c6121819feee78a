"""docs/tutorial.md, built by pasting: its files run, and its commands answer what the page says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from scripts.site.markdown import Block, blocks
from tocsin.cli import main

from .pages import ROOT
from .served import ENVIRONMENT, served

PAGE = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
FILE = re.compile(r"# (\w+)\.py\n")
MADE = re.compile(r"\b01[0-9a-hjkmnp-tv-z]{24}\b|\b1[0-9]{12}\b")
"""Ids and instants: other ones each time."""


def files() -> dict[str, str]:
    """The files that the page says to save, by name."""
    texts = [block.text for block in blocks(PAGE) if block.language == "python"]
    return {match[1]: text for text in texts if (match := FILE.match(text))}


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
        cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert (done.returncode, "4 passed" in done.stdout) == (0, True), done.stdout
    assert not list(tmp_path.glob("*.db*")), "no store is made where the app is"


def section(title: str) -> list[Block]:
    return blocks(PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0])


def test_the_app_does_what_the_page_shows(tmp_path: Path) -> None:
    with served(tmp_path, **files()) as (http, program):
        origin = str(http.base_url).rstrip("/")
        looking = {"TOCSIN_URL": f"{origin}/jobs", "TOCSIN_TOKEN": "choose-a-long-secret", "TOCSIN_INSTANCE": "ann"}

        def tocsin(*words: str) -> str:
            result = CliRunner().invoke(main, words, env=looking)
            assert result.exit_code == 0, result.output
            return result.stdout

        steps = [
            step
            for block in section("3. Run it")
            for step in re.findall(r"^\$ (.*)\n(.*)$", block.text, re.M)
            if block.language == "console"
        ]
        assert len(steps) == 3
        for command, shown in steps:
            asked = ["sh", "-c", command.replace("http://127.0.0.1:8000", origin)]
            answer = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=30).stdout
            assert MADE.sub("?", answer) == MADE.sub("?", shown)
        program.line_with("to ann: stretch")

        [commands] = section("4. Look inside")
        for command in commands.text.splitlines()[1:]:
            name, *words = shlex.split(command)
            assert (name, bool(tocsin(*words))) == ("tocsin", True)
        [listed] = http.get("/users/ann/reminders").json()
        assert (listed["id"], listed["text"]) == ("tea", "tea")
        assert http.delete("/users/ann/reminders/tea").json() == {"cancelled": True}
        assert json.loads(tocsin("schedules", "show", "digest", "--json"))["timezone"] == "Europe/Berlin"
