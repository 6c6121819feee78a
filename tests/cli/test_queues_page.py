"""The story of docs/queues.md: its lines run in a shell against a real server, and answer what the page shows."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from .documented_commands import run_step, steps_of
from .processes import tocsin_serve

STEPS = steps_of("queues.md")
MADE = re.compile(
    r"\b1[0-9]{12}\b|\b[0-9]+\.[0-9]+\.[0-9a-f]{24}\b|\b01[0-9a-hjkmnp-tv-z]{24}\b|\b[0-9a-f]{16}-[0-9]+\b"
)
"""Instants, leases, ids and incarnations: other ones each time."""


def alike(answer: str) -> str:
    answer = re.sub(r"for [0-9.]+m?s now; its lease ends in [0-9a-z ]+", "for ? now; its lease ends in ?", answer)
    return MADE.sub("?", re.sub(r'"oldestDueMs":[0-9]+', '"oldestDueMs":0', answer))


def test_the_page_tells_a_whole_story() -> None:
    told = " ".join(command for command, _ in STEPS)
    for part in ('"then"', "/queues/video/claim", "/queues/*/claim", "/extend", "/result", "/pending"):
        assert part in told
    assert '"charge": false' in told
    assert told.count("/complete") == 4
    assert len(STEPS) == 15


@pytest.mark.skipif(shutil.which("curl") is None and "CI" not in os.environ, reason="there is no curl here")
def test_every_line_of_the_story_answers_what_it_shows(tmp_path: Path) -> None:
    """What a command takes from an earlier answer, a lease or an id, is taken from the answer that came here."""
    known: dict[str, str] = {}
    with tocsin_serve("--insecure", cwd=tmp_path) as server:
        url = server.url()
        for command, shown in STEPS:
            asked = command
            for told, got in known.items():
                asked = asked.replace(told, got)
            answer = run_step(asked, url, tmp_path)
            assert alike(answer) == alike(shown)
            known |= dict(zip(MADE.findall(shown), MADE.findall(answer), strict=True))
        assert server.stop() == 0
