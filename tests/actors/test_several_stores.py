"""A host with several stores: what callers, health, exports and metrics see of them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tocsin import ActorHost
from tocsin.cli.stores import store_command
from tocsin.errors import ResidencyError, SettingsError, StoreFull, StoreUnavailable
from tocsin.settings import load
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio

EU = {"eu-*": "eu"}


def host_of(folder: Path) -> ActorHost:
    stores = {name: f"sqlite:///{folder}/{name}.db" for name in ("default", "eu")}
    return ActorHost.open(stores, residency=EU)


def instances_in(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM actor")]
    return {name.removeprefix("scheduler/") for name in names if name.startswith("scheduler/")}


async def test_jobs_of_an_instance_are_in_its_store_and_run_from_there(tmp_path: Path) -> None:
    async with host_of(tmp_path) as host:
        for name in ("eu-1", "other"):
            await host.scheduler(name).run_after(0, "w:r", {"of": name}, queue="q")
            [job] = await host.scheduler(name).claim("q")
            await host.scheduler(name).complete(job.id, job.lease)
        assert [each.name for each in (await host.instances()).instances] == ["eu-1", "other"]
        assert (await host.export_instance("eu-1", tmp_path / "eu-1.jsonl")).rows
        assert (await host.measures()).schedulers is not None

    assert instances_in(tmp_path / "eu.db") == {"eu-1"}
    assert instances_in(tmp_path / "default.db") == {"other"}

    async with ActorHost.open(f"sqlite:///{tmp_path}/default.db", dispatch=False) as alone:
        with pytest.raises(ResidencyError, match="fixed to the store eu"):
            await alone.import_instance("eu-1", tmp_path / "eu-1.jsonl")


async def test_a_full_store_refuses_its_own_instances_only_and_health_says_which() -> None:
    eu = MemoryProvider()
    async with ActorHost.open({"default": "memory:", "eu": eu}, residency=EU) as host:
        eu.full = True

        with pytest.raises(StoreFull):
            await host.scheduler("eu-1").run_after("1h", "w:r", queue="q")
        with pytest.raises(StoreFull):
            await host.scheduler("eu-1").schedules.put("s", "w:r", every="1h", queue="q")
        await host.scheduler("other").run_after("1h", "w:r", queue="q")

        assert host.trouble is None
        assert [(one.code, "store eu" in one.message) for one in host.health()] == [("STORE_FULL", True)]
        assert (await host.scheduler("other").status()).health == "green"
        assert (await host.scheduler("eu-1").status()).health == "red"


async def test_a_store_that_was_away_at_the_start_stops_nobody_else(tmp_path: Path) -> None:
    async with host_of(tmp_path) as host:
        await host.scheduler("eu-1").run_after("1h", "w:r", queue="q")
        await host.scheduler("other").run_after("1h", "w:r", queue="q")
    (tmp_path / "eu.db").rename(tmp_path / "eu.moved")
    (tmp_path / "eu.db").mkdir()  # what cannot be opened, and is not made anew

    async with host_of(tmp_path) as host:
        assert host.ready
        assert (await host.scheduler("other").status()).backlog == 1
        with pytest.raises(StoreUnavailable, match="the store eu, to which this instance belongs, is away"):
            await host.scheduler("eu-1").run_after("1h", "w:r", queue="q")
        listed = await host.instances()
        assert ([each.name for each in listed.instances], listed.away) == (["other"], ("eu",))
        with pytest.raises(StoreUnavailable, match="names cannot be listed"):
            await host.runtime.provider.names("", 10)

    assert instances_in(tmp_path / "default.db") == {"other"}


async def test_a_store_that_goes_away_later_is_left_out_of_the_list_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    eu, us = MemoryProvider(), MemoryProvider()
    async with ActorHost.open({"default": "memory:", "eu": eu, "us": us}, residency={**EU, "us-*": "us"}) as host:
        for name in ("eu-1", "other", "us-1"):
            await host.scheduler(name).run_after("1h", "w:r", queue="q")
        assert [each.name for each in (await host.instances()).instances] == ["eu-1", "other", "us-1"]
        assert not (await host.instances()).away

        async def away(start: str, limit: int) -> list[str]:
            raise StoreUnavailable("the server does not answer")

        monkeypatch.setattr(eu, "names", away)
        listed = await host.instances(limit=1)
        assert ([each.name for each in listed.instances], listed.away, listed.truncated) == (["other"], ("eu",), True)
        listed = await host.instances(limit=1, cursor=listed.cursor)
        assert ([each.name for each in listed.instances], listed.away) == (["us-1"], ("eu",))


async def test_rules_without_names_of_stores_are_refused() -> None:
    with pytest.raises(SettingsError, match="residency names stores: give them by name"):
        ActorHost.open("memory:", residency=EU)


def test_settings_name_several_stores_in_a_file_and_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "tocsin.toml").write_text(
        '[stores]\neu = "postgresql://u:hidden@db/x?password=hidden"\n[residency]\n"eu-*" = "eu"\n'
    )
    settings = load({}, {"TOCSIN_STORE": "memory:"}, directory=tmp_path)

    assert settings.all_stores == {"default": "memory:", "eu": "postgresql://u:hidden@db/x?password=hidden"}
    assert settings.residency == EU
    assert "hidden" not in settings.shown_store
    assert "hidden" not in repr(settings)

    settings = load({}, {"TOCSIN_STORES": "eu=memory: us=memory:", "TOCSIN_RESIDENCY": "eu-*=eu us-*=us"})
    assert settings.all_stores == {"eu": "memory:", "us": "memory:"}
    assert settings.residency == {"eu-*": "eu", "us-*": "us"}

    assert load({}, {}).all_stores == "sqlite:///tocsin.db"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TOCSIN_STORES": "eu"}, "TOCSIN_STORES must be like eu=sqlite:///eu.db"),
        ({"TOCSIN_STORES": "eu=memory: eu=memory:"}, "each name once"),
        ({"TOCSIN_STORES": "eu=here.db"}, "TOCSIN_STORES: eu must be a store URL"),
        ({"TOCSIN_RESIDENCY": "eu-*"}, r"TOCSIN_RESIDENCY must be like eu-\*=eu"),
    ],
)
def test_wrong_settings_of_stores_are_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load({}, environ)


def test_a_store_is_given_twice(tmp_path: Path) -> None:
    settings = load({}, {"TOCSIN_STORES": "default=memory:", "TOCSIN_STORE": "memory:"})

    with pytest.raises(SettingsError, match="TOCSIN_STORE and the store default are both given"):
        _ = settings.all_stores


def test_commands_about_one_store_take_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import click
    from click.testing import CliRunner

    @click.command()
    @store_command
    def look(store: str, as_json: bool) -> None:
        print(store)

    async def fill() -> None:
        async with host_of(tmp_path) as host:
            await host.scheduler("eu-1").run_after("1h", "w:r", queue="q")

    asyncio.run(fill())
    monkeypatch.setenv("TOCSIN_STORES", f"default=sqlite:///{tmp_path}/default.db eu=sqlite:///{tmp_path}/eu.db")

    run = CliRunner().invoke
    assert run(look, ["--store", "eu"]).output.strip() == f"sqlite:///{tmp_path}/eu.db"
    assert run(look, ["--store", "memory:"]).output.strip() == "memory:"
    assert "there are several stores, and this is about one: --store default or --store eu" in str(run(look, []).output)
    assert "must be a store URL: sqlite:///us" in str(run(look, ["--store", "us"]).output)
