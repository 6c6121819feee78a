"""`tocsin cluster` and `tocsin migrate` on a real server, as they are typed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from tests.postgres import Postgres
from tests.waiting import wait_until
from tocsin import ActorHost
from tocsin.cli.failure import Refused, StoreUnusable, WrongSettings
from tocsin.storage.postgres.layout import LAYOUT
from tocsin.storage.postgres.snapshot import has_store

from .conftest import Run


@pytest.fixture
def url(postgres: Postgres) -> str:
    """The address of a store that is not there yet, with a password that nobody is to see."""
    return f"{postgres.url('postgres', user='postgres:hidden')}&schema=c{uuid4().hex[:12]}"


def beside_a_host(url: str, ask: Callable[[], Any]) -> Any:
    """Do something while a host of the store is up."""

    async def main() -> Any:
        async with ActorHost.open(url, dispatch=False) as host:
            await host.scheduler("shop").run_after("1h", "w:r", queue="q")
            return await asyncio.to_thread(ask)

    return asyncio.run(main())


def test_status_shows_hosts_and_where_an_instance_is(url: str, run: Run) -> None:
    def look() -> tuple[Any, Any]:
        told = run("cluster", "status", "--instance", "shop", "--store", url, "--json")
        return json.loads(told.stdout), run("cluster", "status", "--instance", "shop", "--store", url)

    told, shown = beside_a_host(url, look)
    (host,) = told["hosts"]
    assert (host["state"], host["slots"], told["unowned"], told["mail"]) == ("up", 4096, 0, 0)
    assert (told["instance"]["name"], told["instance"]["owner"], told["instance"]["epoch"]) == ("shop", host["host"], 1)
    assert shown.exit_code == 0
    assert host["host"][:8] in shown.stdout and "4,096" in shown.stdout and "hidden" not in shown.output

    alone = run("cluster", "status", "--store", url)
    assert alone.exit_code == Refused.exit_code
    assert "4,096 slots of the store have no living owner" in alone.stderr


def test_a_slot_is_released_and_taken_anew_and_a_host_is_drained(url: str, run: Run) -> None:
    def looked() -> Any:
        return json.loads(run("cluster", "status", "--store", url, "--json").stdout)

    def change() -> None:
        released = json.loads(run("cluster", "release", "--slot", "7", "--slot", "9", "--store", url, "--json").stdout)
        assert released == {"released": [7, 9]}
        wait_until(lambda: looked()["unowned"] == 0)
        facts = looked()
        (host,) = facts["hosts"]
        assert host["slots"] == 4096, "its host took them again"
        unknown = run("cluster", "drain", "nobody", "--store", url)
        assert unknown.exit_code == Refused.exit_code and host["name"] in unknown.stderr
        last = run("cluster", "drain", host["host"][:6], "--store", url)
        assert last.exit_code == Refused.exit_code and "is the only host that is up" in last.stderr
        assert looked()["hosts"][0]["state"] == "up"
        drained = json.loads(run("cluster", "drain", host["host"][:6], "--force", "--store", url, "--json").stdout)
        assert drained == {"host": host["host"], "name": host["name"], "slots": 4096}
        wait_until(lambda: looked()["unowned"] == 4096)
        assert "no host that is up is called" in run("cluster", "drain", host["host"], "--store", url).stderr

    beside_a_host(url, change)
    nobodys = run("cluster", "release", "--slot", "7", "--store", url)
    assert nobodys.exit_code == Refused.exit_code and "none of these slots had an owner" in nobodys.stderr


def test_a_wrong_address_makes_no_store(url: str, run: Run) -> None:
    for words in (["status"], ["drain", "x"], ["release", "--slot", "1"]):
        refused = run("cluster", *words, "--store", url)
        assert refused.exit_code == StoreUnusable.exit_code
        assert "there is no store at postgresql://" in refused.stderr and "hidden" not in refused.stderr
    assert not asyncio.run(has_store(url))


def test_a_store_is_brought_up_by_the_command_or_by_the_statements_that_it_prints(
    url: str, run: Run, postgres: Postgres
) -> None:
    postgres.sql(f"CREATE ROLE {(role := f'r{uuid4().hex[:12]}')} LOGIN")
    refused = run("migrate", "--store", url.replace("postgres:hidden@", f"{role}@"))
    assert refused.exit_code == StoreUnusable.exit_code
    assert "--sql prints" in refused.stderr and "GRANT CREATE ON DATABASE" in refused.stderr

    printed = run("migrate", "--sql", "--store", url)
    assert printed.exit_code == 0 and not asyncio.run(has_store(url))
    other = f"{url}2"
    assert json.loads(run("migrate", "--store", url, "--json").stdout) == {"before": 0, "after": LAYOUT}
    assert f"has layout {LAYOUT} already" in run("migrate", "--store", url).output
    assert "nothing to do" in run("migrate", "--sql", "--store", url).output

    postgres.sql(run("migrate", "--sql", "--store", other).stdout)
    assert "nothing to do" in run("migrate", "--sql", "--store", other).output
    assert beside_a_host(other, lambda: run("check", "--store", other).exit_code) == 0
    assert run("migrate", "--store", "sqlite:///a.db").exit_code == WrongSettings.exit_code
