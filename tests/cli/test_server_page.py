"""The story of docs/server.md: its lines run in a shell against a real server, and answer what the page shows."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from .documented_commands import run_step, steps_of
from .processes import tocsin_serve

STEPS = steps_of("server.md")
CHANGING = re.compile(r"\b1[0-9]{12}\b|\b[0-9a-f]{16}-[0-9]+\b|(?<=\"walBytes\":)[0-9]+")
"""Instants, incarnations and lengths: other ones each time."""


def test_the_page_tells_a_whole_story() -> None:
    told = " ".join(command for command, _ in STEPS)

    assert all(part in told for part in ("/schedule", "/list", "/why", "/reschedule", "/status", "/cancel", "/get"))
    assert len(STEPS) == 8


@pytest.mark.skipif(shutil.which("curl") is None and "CI" not in os.environ, reason="there is no curl here")
def test_every_line_of_the_story_answers_what_it_shows(tmp_path: Path) -> None:
    with tocsin_serve("--insecure", "--origin-url", "http://127.0.0.1:8000", cwd=tmp_path) as server:
        url = server.url()
        for command, shown in STEPS:
            assert CHANGING.sub("?", run_step(command, url, tmp_path)) == CHANGING.sub("?", shown)
        assert server.stop() == 0
