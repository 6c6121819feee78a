"""`tocsin move` of a whole store, as it is typed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tocsin import ActorHost
from tocsin.cli.failure import Refused, StoreUnusable, WrongSettings
from tocsin.errors import StoreMoved

from .conftest import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store of three schedulers, as the working directory."""
    monkeypatch.chdir(tmp_path)

    async def fill() -> None:
        async with ActorHost.open("sqlite:///a.db", share=False) as host:
            for name in ("one", "two", "three"):
                await host.scheduler(name).run_after("1h", "w:r", {"of": name}, queue="q")

    asyncio.run(fill())
    return tmp_path


async def backlogs(store: str) -> dict[str, int]:
    async with ActorHost.open(store, share=False) as host:
        return {each.name: each.backlog for each in (await host.instances()).instances}


def test_everything_moves_and_the_old_store_names_the_new_one(run: Run, folder: Path) -> None:
    previewed = run("move", "sqlite:///a.db", "sqlite:///b.db", "--dry-run", "--json")
    assert not (folder / "b.db").exists()

    moved = run("move", "sqlite:///a.db", "sqlite:///b.db", "--json")
    again = run("move", "sqlite:///a.db", "sqlite:///b.db", "--json")

    told = json.loads(moved.stdout)
    assert (told["moved"], told["actors"]) == (True, 3)
    assert json.loads(again.stdout) == told
    assert json.loads(previewed.stdout) == told | {"moved": False, "dryRun": True}
    assert asyncio.run(backlogs("sqlite:///b.db")) == {"one": 1, "three": 1, "two": 1}
    with pytest.raises(StoreMoved, match=f"was moved to sqlite:///{folder}/b.db") as refused:
        asyncio.run(backlogs("sqlite:///a.db"))
    assert refused.value.details["movedTo"] == f"sqlite:///{folder}/b.db"
    assert run("check", "--store", "sqlite:///a.db").exit_code == 0, "it can still be read"
    elsewhere = run("move", "sqlite:///a.db", "sqlite:///c.db")
    assert elsewhere.exit_code == Refused.exit_code
    assert not (folder / "c.db").exists()


def test_a_store_in_use_is_not_moved_and_nothing_is_moved_over_another(run: Run, folder: Path) -> None:
    async def while_in_use() -> tuple[int, int]:
        async with ActorHost.open("sqlite:///a.db", share=False):
            source = await asyncio.to_thread(run, "move", "sqlite:///a.db", "sqlite:///b.db")
            target = await asyncio.to_thread(run, "move", "sqlite:///b.db", "sqlite:///a.db")
        return source.exit_code, target.exit_code

    assert asyncio.run(while_in_use()) == (StoreUnusable.exit_code, StoreUnusable.exit_code)
    assert run("move", "sqlite:///none.db", "sqlite:///b.db").exit_code == StoreUnusable.exit_code
    assert not (folder / "none.db").exists()
    assert run("move", "sqlite:///a.db", f"sqlite:///{folder}/a.db").exit_code == Refused.exit_code
    assert run("move", "sqlite:///a.db", "memory:").exit_code == WrongSettings.exit_code
    assert asyncio.run(backlogs("sqlite:///a.db")) == {"one": 1, "three": 1, "two": 1}


def test_options_of_one_form_are_refused_in_the_other(run: Run, folder: Path) -> None:
    for options in (["--as", "x"], ["--remove"], ["--instance", "one", "--dry-run"]):
        refused = run("move", "sqlite:///a.db", "sqlite:///b.db", *options)
        assert refused.exit_code == WrongSettings.exit_code
        assert "--instance" in refused.stderr
    assert not (folder / "b.db").exists()


def test_one_instance_is_moved_where_it_is_named(run: Run, folder: Path) -> None:
    assert run("move", "sqlite:///a.db", "sqlite:///b.db", "--instance", "one").exit_code == 0

    assert asyncio.run(backlogs("sqlite:///b.db")) == {"one": 1}
    assert set(asyncio.run(backlogs("sqlite:///a.db"))) == {"one", "three", "two"}
