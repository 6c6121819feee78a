"""Commands on stores in PostgreSQL: moved there and back, checked, and what other tools do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.postgres import Postgres
from tocsin import ActorHost
from tocsin.cli.failure import StoreUnusable, WrongSettings
from tocsin.errors import StoreMoved
from tocsin.storage.postgres.snapshot import has_store

from .conftest import Run


@pytest.fixture
def url(postgres: Postgres) -> str:
    return f"{postgres.url('postgres')}&schema=e{uuid4().hex[:12]}"


async def fill(url: str) -> None:
    async with ActorHost.open(url, share=False) as host:
        for name in ("one", "two", "three"):
            await host.scheduler(name).run_after("1h", "w:r", {"of": name}, queue="q")


async def backlogs(url: str) -> dict[str, int]:
    async with ActorHost.open(url, share=False) as host:
        return {each.name: each.backlog for each in (await host.instances()).instances}


def test_a_file_moves_to_the_database_and_back(url: str, run: Run, tmp_path: Path) -> None:
    file, back = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/back.db"
    asyncio.run(fill(file))
    previewed = run("move", file, url, "--dry-run", "--json")
    assert not asyncio.run(has_store(url))

    there = json.loads(run("move", file, url, "--json").stdout)
    assert json.loads(previewed.stdout) == there | {"moved": False, "dryRun": True}
    assert asyncio.run(backlogs(url)) == {"one": 1, "three": 1, "two": 1}
    with pytest.raises(StoreMoved, match="was moved to postgresql://"):
        asyncio.run(backlogs(file))

    moved = run("move", url, back, "--json")
    assert json.loads(moved.stdout)["actors"] == 3
    assert asyncio.run(backlogs(back)) == {"one": 1, "three": 1, "two": 1}
    with pytest.raises(StoreMoved, match="was moved to sqlite://"):
        asyncio.run(backlogs(url))
    assert run("check", "--store", url).exit_code == 0


def test_a_database_in_use_is_not_moved(url: str, run: Run, tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/a.db"
    asyncio.run(fill(file))

    async def while_in_use() -> tuple[int, str]:
        async with ActorHost.open(url):
            tried = await asyncio.to_thread(run, "move", file, url)
        return tried.exit_code, tried.stderr

    code, said = asyncio.run(while_in_use())
    assert code == StoreUnusable.exit_code
    assert "is in use by" in said
    assert asyncio.run(backlogs(file)) == {"one": 1, "three": 1, "two": 1}


def test_backup_and_repair_name_what_does_it(url: str, run: Run, tmp_path: Path) -> None:
    asyncio.run(fill(url))

    copied = run("backup", "--store", url, str(tmp_path / "copy.db"))
    repaired = run("check", "--store", url, "--repair")

    assert (copied.exit_code, repaired.exit_code) == (WrongSettings.exit_code, WrongSettings.exit_code)
    assert "pg_dump" in copied.stderr
    assert "tocsin move" in repaired.stderr


def test_a_store_in_a_database_is_rehearsed(url: str, run: Run) -> None:
    asyncio.run(fill(url))
    result = run("simulate", url, "--until", "+2h", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["instances"], found["outcomes"]) == (3, {"done": 3})
    assert asyncio.run(backlogs(url)) == {"one": 1, "three": 1, "two": 1}, "it is only read"
