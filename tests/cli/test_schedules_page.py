"""The curl lines of docs/schedules.md run in a shell against a real server, and answer what the page shows."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from .conftest import Canned
from .documented_commands import run_step, steps_of
from .processes import tocsin_serve

STEPS = [step for step in steps_of("schedules.md") if step[0].startswith("curl ")]
CHANGING = re.compile(r"\b1[0-9]{12}\b|\brun-[0-9a-z]+-[0-9a-z]+")
"""Instants and ids: other ones each time."""


def alike(answer: str) -> str:
    return CHANGING.sub("?", re.sub(r'"(latenessMs)":\d+', r'"\1":0', answer).replace(',"live":true', ""))


def test_the_page_tells_a_whole_story() -> None:
    told = " ".join(command for command, _ in STEPS)
    for part in ("/cron/preview", "-X PUT", "/pause", '"revision": 1', "/resume", "-X DELETE", "/occurrences"):
        assert part in told
    assert told.count("/trigger") == 2
    assert len(STEPS) == 11


@pytest.mark.skipif(shutil.which("curl") is None and "CI" not in os.environ, reason="there is no curl here")
def test_every_line_of_the_story_answers_what_it_shows(tmp_path: Path, canned: Canned) -> None:
    canned.answer({})
    with tocsin_serve("--insecure", "--origin-url", canned.url, cwd=tmp_path) as server:
        url = server.url()
        answers = [run_step(command, url, tmp_path) for command, _ in STEPS]
        assert [alike(answer) for answer in answers] == [alike(shown) for _, shown in STEPS]
        triggered, again = (json.loads(answers[n]) for n, (command, _) in enumerate(STEPS) if "/trigger" in command)
        assert (again["id"], again["slot"]) == (triggered["id"], triggered["slot"])
        assert server.stop() == 0  # drained: what was on its way has arrived
    [callback] = canned.requests
    assert (callback.body["id"], callback.body["schedule"]) == (
        triggered["id"], {"name": "report", "slot": triggered["slot"]},
    )  # fmt: skip
