"""What the pages show as a whole runs as a whole, and their tables have all that there is."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from scripts.pictures import ARROWS, moves, pictures
from scripts.site.markdown import blocks
from tocsin import ActorHost, Cancelled, Retry
from tocsin.actors.host_options import MADE_HERE
from tocsin.actors.scheduler.client.job_checks import JobOptions
from tocsin.settings import Settings
from tocsin.testing import FakeScheduler, lab, simulate

from .pages import ROOT
from .served import ENVIRONMENT, served

DOCS = ROOT / "docs"


def python_of(page: Path) -> list[str]:
    return [block.text for block in blocks(page.read_text("utf-8")) if block.language == "python"]


def first_cells(page: str, title: str) -> set[str]:
    """Return the names in the first column of the table that follows a text."""
    table = (DOCS / page).read_text("utf-8").partition(title)[2].partition("|---")[2].partition("\n\n")[0]
    return {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}


def run(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_app_of_the_readme_reminds(tmp_path: Path) -> None:
    [app] = python_of(ROOT / "README.md")

    with served(tmp_path, "--workers", "2", app=app.replace('"5s"', "0.1")) as (http, program):
        for number in range(42, 46):
            assert http.post(f"/invoices/{number}/remind").json().keys() == {"id"}
            program.line_with(f"reminding of invoice {number}")


@pytest.mark.anyio
async def test_the_pool_of_one_scheduler_for_all_limits_all_users_and_labels_tell_them_apart() -> None:
    [block] = python_of(DOCS / "concepts.md")
    shop: dict[str, Any] = {"__name__": "concepts"}
    exec(compile(block, "concepts.md", "exec", dont_inherit=True), shop)
    at_once: list[int] = [0]

    async def send(args: Any) -> None:
        at_once.append(at_once[-1] + 1)
        await asyncio.sleep(5)
        at_once.append(at_once[-1] - 1)

    shop["receiver"].register({"mails:slow": send})
    async with lab(shop["app"]) as t:
        ids = [(await t.client.post(f"/users/u{n}/mails?text=tea")).json() for n in range(2)]
        assert (await t.client.get("/users/u0/mails")).json() == [ids[0]]
        assert (await t.client.delete(f"/users/u1/mails/{ids[0]}")).status_code == 404
        assert (await t.client.delete(f"/users/u0/mails/{ids[0]}")).json() is True
        for n in range(10):
            await t.scheduler("mails").run_after("1h", "mails:slow", pool="smtp", max_concurrency=3, labels=[f"u{n}"])
        for n in range(5):
            await t.scheduler(f"u{n}").run_after("3h", "mails:slow", pool="smtp", max_concurrency=3)
        await t.advance("2h")
        assert (len(t.deliveries), max(at_once)) == (11, 3)
        await t.advance("2h")
    assert max(at_once) == 5, "five schedulers have five pools of this name"


@pytest.mark.anyio
async def test_routes_of_fastapi_return_results_if_they_say_so_as_the_page_on_frameworks_tells() -> None:
    app, jobs = FastAPI(), FakeScheduler()
    returns = {"said": Cancelled, "many": list[Cancelled], "named": dict[str, Cancelled], "maybe": Cancelled | None}
    for path, kind in {**returns, "unsaid": None, "made": None}.items():

        async def route(path: str = path) -> Any:
            result = await jobs.cancel("none")
            return {"many": [result], "named": {"a": result}, "made": result.to_dict()}.get(path, result)

        app.get(f"/{path}", response_model=kind)(route)
    plain = {"cancelled": False, "wasRunning": False}
    async with AsyncClient(transport=ASGITransport(app), base_url="http://app") as client:
        for path, told in {
            "said": plain,
            "many": [plain],
            "named": {"a": plain},
            "maybe": plain,
            "made": plain,
        }.items():
            assert (await client.get(f"/{path}")).json() == told
        with pytest.raises(ValueError, match="'Cancelled' object is not iterable"):
            await client.get("/unsaid")


def test_the_actor_of_the_page_counts_over_restarts(tmp_path: Path) -> None:
    [example] = python_of(DOCS / "actors.md")

    assert [run(example, tmp_path) for _ in range(2)] == ["1\n", "2\n"]


@pytest.mark.anyio
async def test_the_queue_of_the_page_is_worked_off(capsys: pytest.CaptureFixture[str]) -> None:
    """The block of docs/queues.md."""
    [example] = python_of(DOCS / "queues.md")
    names: dict[str, Any] = {}
    async with ActorHost.open("memory:") as host:
        names["jobs"] = jobs = host.scheduler("reminders")
        exec(example, names)
        await names["example"]()
        [mail] = await jobs.claim("mail")

    assert capsys.readouterr().out == "{'seconds': 5}\n"
    assert (mail.function_path, mail.parent and mail.parent.result) == ("mail:send", {"seconds": 5})


def test_the_examples_of_simulations_hold() -> None:
    names: dict[str, Any] = {}
    for example in python_of(DOCS / "testing.md"):
        exec(example, names)

    for seed in range(5):
        simulate(seed, names["a_reminder_arrives_in_time"])
        simulate(seed, names["a_bell_rings_through_crashes"])


def test_the_settings_that_the_page_says_the_file_takes_are_those_it_takes() -> None:
    table = (DOCS / "settings.md").read_text("utf-8").partition("| variable | default |")[2].partition("\n\n")[0]
    names = re.findall(r"`TOCSIN_([A-Z_]+)`", table.partition("| `TOCSIN_LOG_LEVEL`")[0])

    assert {name.lower() for name in names} == {field.name for field in fields(Settings)} - {
        "sources",
        "files",
        "config",
    }


def test_the_tables_of_options_have_all_that_there_are() -> None:
    takers = [signature(one).parameters.values() for one in (ActorHost.open, ActorHost.__init__)]
    kinds = {one.name for taker in takers for one in taker if one.kind is Parameter.KEYWORD_ONLY}
    assert first_cells("operating.md", "## Options of `ActorHost.open`") == {"store", *kinds} - MADE_HERE
    assert first_cells("semantics.md", "### Retry") == {*Retry.__struct_fields__}
    assert first_cells("methods.md", "## Options of a job") == {*JobOptions.__annotations__, "workflow"}


def test_the_pictures_are_drawn_from_what_the_code_says() -> None:
    assert {path: path.read_text("utf-8") for path, _ in pictures()} == dict(pictures()), (
        "run `.venv/bin/python -m scripts.pictures`"
    )
    assert moves() == set(ARROWS)
