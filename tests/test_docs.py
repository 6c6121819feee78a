"""What the docs show runs, and what they link to is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest

from tocsin import ActorHost, Retry
from tocsin.settings import Settings
from tocsin.testing import simulate

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text("utf-8"))


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    assert not [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=named)
def test_examples_are_python(page: Path) -> None:
    for block in blocks(page):
        compile(block, named(page), "exec")


def test_the_actor_of_the_readme_counts_over_restarts(tmp_path: Path) -> None:
    [example] = [block for block in blocks(ROOT / "README.md") if "class Counter" in block]

    runs = [
        subprocess.run(
            [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        for _ in range(2)
    ]

    assert [run.stdout for run in runs] == ["1\n", "2\n"]


def test_the_settings_that_the_readme_says_the_file_takes_are_those_it_takes() -> None:
    table = (ROOT / "README.md").read_text("utf-8").partition("| variable | default |")[2].partition("\n\n")[0]
    names = re.findall(r"`TOCSIN_([A-Z_]+)`", table.partition("| `TOCSIN_LOG_LEVEL`")[0])

    assert {name.lower() for name in names} == {field.name for field in fields(Settings)} - {
        "sources",
        "files",
        "config",
    }


LIVE = """
import asyncio

async def live() -> None:
    async with app.router.lifespan_context(app):
        print(len(SECRETS), host.ready)

asyncio.run(live())
"""


def test_the_tables_of_options_have_all_that_there_are() -> None:
    def names(page: str, title: str) -> set[str]:
        table = (ROOT / "docs" / page).read_text("utf-8").partition(title)[2].partition("|---")[2].partition("\n\n")[0]
        return {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}

    takers = [signature(one).parameters.values() for one in (ActorHost.open, ActorHost.__init__)]
    kinds = {one.name for taker in takers for one in taker if one.kind is Parameter.KEYWORD_ONLY}
    assert names("operating.md", "## Options of `ActorHost.open`") == {"store", *kinds} - {"has_origin"}
    assert names("semantics.md", "### Retry") == {*Retry.__struct_fields__}


def test_the_app_of_the_readme_takes_secrets_by_comma(tmp_path: Path) -> None:
    app, receiver, *_ = blocks(ROOT / "README.md")
    secrets = ", ".join("whsec_" + letter * 32 for letter in "ab")
    env = {**os.environ, "TOCSIN_SECRETS": secrets, "TOCSIN_TOKENS": "ops:admin:choose-a-long-secret"}
    done = subprocess.run(
        [sys.executable, "-c", f"{app}\n{receiver}\n{LIVE}"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert (done.stdout, done.stderr) == ("2 True\n", "")


@pytest.mark.anyio
async def test_the_queue_of_the_readme_is_worked_off(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = [block for block in blocks(ROOT / "README.md") if "Worker(jobs" in block]
    names: dict[str, Any] = {}
    async with ActorHost.open("memory:") as host:
        names["jobs"] = jobs = host.scheduler("reminders")
        exec(example, names)
        await names["example"]()
        [mail] = await jobs.claim("mail")

    assert capsys.readouterr().out == "{'seconds': 5}\n"
    assert (mail.function_path, mail.parent and mail.parent.result) == ("mail:send", {"seconds": 5})


def test_the_examples_of_simulations_hold() -> None:
    example, of_crashes = blocks(ROOT / "docs" / "testing.md")
    names: dict[str, Any] = {}
    exec(example, names)
    exec(of_crashes, names)

    for seed in range(5):
        simulate(seed, names["a_reminder_arrives_in_time"])
        simulate(seed, names["a_bell_rings_through_crashes"])
