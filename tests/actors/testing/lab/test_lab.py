"""An app in a lab: its own host, receiver, worker and endpoints, in virtual time, on an ordinary event loop."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from asgiref.wsgi import WsgiToAsgi
from flask import Flask
from starlette.applications import Starlette

from tests.actors.testing.lab.shop import SECRET, Shop
from tocsin import ActorHost, Job, Received, Receiver, Retry, RetryLater, TerminalError
from tocsin.errors import ResidencyError, SettingsError
from tocsin.testing import Lab, lab

pytestmark = pytest.mark.anyio
START = datetime(2027, 1, 1, tzinfo=UTC)
STORES = pytest.mark.parametrize("store", ["memory", "sqlite"])


@STORES
async def test_an_app_as_it_is_runs_days_in_virtual_time(store: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shop = Shop()
    async with lab(shop.app, start=START, store=store) as t:
        answer = await t.client.post("/carts/anna")
        [job] = await t.assert_scheduled("carts:remind", after="2d", args={"user": "anna"})
        assert job.id == answer.json()["id"]

        await t.advance("47h")
        assert not t.deliveries
        assert not os.listdir(tmp_path), "neither file nor lock nor socket is made where the app says"
        await t.advance("1h")

        [delivery] = t.deliveries
        await t.refute_scheduled()
    assert (delivery.path, delivery.args, delivery.attempt, delivery.ok) == ("carts:remind", {"user": "anna"}, 1, True)
    assert delivery.at == (START + timedelta(days=2)).timestamp() * 1000
    assert shop.did == [("remind", "anna")]
    assert not os.listdir(tmp_path), "the store that the app names is not touched"


@STORES
async def test_an_app_on_postgresql_runs_in_a_lab_without_one(store: Any) -> None:
    host = ActorHost.open("postgresql://nobody@no-server.invalid/none", origin="http://127.0.0.1:1", secrets=[SECRET])
    jobs = host.scheduler()
    async with lab(Starlette(lifespan=host.lifespan), start=START, store=store) as t:
        await jobs.run_after("2d", "carts:remind", {"user": "anna"})
        await t.advance("47h")
        assert not t.deliveries
        await t.advance("1h")
        assert [one.path for one in t.deliveries] == ["carts:remind"] and (await jobs.status()).cluster is None


async def test_handlers_alone_are_an_app_too() -> None:
    got: list[Any] = []

    async def pay(args: dict[str, Any], job: Received) -> str:
        got.append((args["amount"], job.attempt))
        return "paid"

    async with lab({"invoices:pay": pay}) as t:
        jobs = t.scheduler("tenant-a")
        id = await jobs.run_after("5m", "invoices:pay", {"amount": Decimal("3.50")}, keep_result="1h")
        assert await t.until(jobs.result(id)) == "paid"

    assert got == [(Decimal("3.50"), 1)]
    assert (t.deliveries[0].instance, t.deliveries[0].args) == ("tenant-a", {"amount": Decimal("3.50")})


async def test_without_an_app_callbacks_are_recorded() -> None:
    async with lab() as t:
        await t.scheduler().run_after("1d", "a:b")
        await t.advance("1d")

    assert [(one.path, one.status) for one in t.deliveries] == [("a:b", 200)]


async def test_a_failure_climbs_the_retry_ladder_and_dies() -> None:
    async def fails(args: Any) -> None:
        raise ValueError("as tested")

    async def busy(args: Any, job: Received) -> None:
        if job.attempt == 1:
            raise RetryLater("10m")

    async def never(args: Any) -> None:
        raise TerminalError("no such account")

    async with lab({"a:fails": fails, "a:busy": busy, "a:never": never}, start=START) as t:
        jobs = t.scheduler()
        await jobs.run_after(0, "a:fails", retry=Retry(max_retries=2, base_ms=60_000))
        await jobs.run_after("1s", "a:busy")
        await jobs.run_after("2s", "a:never")
        await t.advance("1h")

        [dead, failed] = await t.dead()
    seconds = [(one.path, one.at // 1000 - int(START.timestamp()), one.status) for one in t.deliveries]
    assert seconds == [
        ("a:fails", 0, 500),
        ("a:busy", 1, 503),
        ("a:never", 2, 422),
        ("a:fails", 60, 500),
        ("a:fails", 180, 500),
        ("a:busy", 601, 200),
    ]
    assert (dead.function_path, failed.function_path, failed.attempts) == ("a:never", "a:fails", 3)
    assert "no such account" in str(dead.last_response)


@STORES
async def test_what_is_due_at_one_instant_runs_in_the_order_in_which_it_was_scheduled(store: Any) -> None:
    """And no id is that of another lab: a receiver may remember it."""

    async def run() -> tuple[set[str], list[Any]]:
        shop = Shop()
        async with lab(shop.app, start=START, store=store) as t:
            await t.scheduler().set_pool("p", max_concurrency=1)
            for user in range(20):
                if user % 3 == 0:
                    await t.crash()
                await t.scheduler().run_after("2d", "carts:remind", {"user": user}, pool="p")
                await t.client.post(f"/carts/app-{user}")
            await t.advance("3d")
            return {one.webhook_id for one in t.deliveries}, [user for _, user in shop.did]

    ids, first = await run()
    others, second = await run()
    assert [one for one in first if isinstance(one, int)] == list(range(20))
    assert [one for one in first if isinstance(one, str)] == [f"app-{one}" for one in range(20)]
    assert first == second
    assert not ids & others


async def test_pools_chains_and_several_schedulers_do_as_they_do() -> None:
    running: list[int] = [0, 0]

    async def one(args: Any, job: Received) -> dict[str, str]:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(1)
        running[0] -= 1
        return {"from": job.instance}

    got: list[Any] = []

    async def after(args: Any, job: Received) -> None:
        got.append(job.parent.result if job.parent else None)

    async with lab({"a:one": one, "a:after": after}, patience=0) as t:
        for name in ("red", "blue"):
            for _ in range(5):
                await t.scheduler(name).run_after(
                    0, "a:one", pool="p", max_concurrency=2, then=[Job("a:after")], id=None
                )
        await t.run_until_idle()
        assert not await t.scheduled()
    assert running == [0, 4]
    assert sorted(each["from"] for each in got) == ["blue"] * 5 + ["red"] * 5


async def test_an_app_and_a_host_that_were_made_before_are_themselves_again_afterwards(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/own.db")
    app = shop.app()
    [host] = shop.hosts
    provider, transport = host.runtime.provider, host._service.origins.gates[""].dispatcher.transport
    for _ in range(2):
        async with lab(app, start=START) as t:
            assert t.host is host
            await t.client.post("/carts/anna")
            await t.advance("2d")
            assert len(t.deliveries) == 1
    assert (host.runtime.provider, host._service.origins.gates[""].dispatcher.transport) == (provider, transport)
    assert "random" not in vars(host.runtime.random)
    async with host:
        assert not (await host.scheduler().list()).records
        assert abs(host.runtime.clock.now_ms() - datetime.now(UTC).timestamp() * 1000) < 60_000
    assert (tmp_path / "own.db").exists()


async def test_the_app_s_own_store_is_used_if_the_test_says_so(tmp_path: Path) -> None:
    shop = Shop(f"sqlite:///{tmp_path}/own.db")
    async with lab(shop.app, store="own") as t:
        await t.client.post("/carts/anna")
    async with lab(shop.app, store="own") as t:
        await t.assert_scheduled("carts:remind")


async def test_a_receiver_with_a_host_of_the_lab_s_needs_its_secrets() -> None:
    receiver = Receiver([SECRET])
    got: list[Any] = []

    @receiver.handler("a:b")
    async def handle(args: Any) -> None:
        got.append(args)

    with pytest.raises(Exception, match=r"the app starts no host .* lab\(app, secrets=\[...\]\)"):
        async with lab(receiver):
            pass
    async with lab(receiver, secrets=[SECRET]) as t:
        await t.scheduler().run_after("1d", "a:b", {"n": 1})
        await t.advance("1d")
    assert got == [{"n": 1}]


async def test_two_hosts_of_one_app_do_not_open_one_store() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        async with ActorHost.open("sqlite:///a.db"), ActorHost.open("sqlite:///a.db") as two, two.lifespan():
            pass

    with pytest.raises(SettingsError, match=r"another host of this lab has .*a\.db"):
        async with lab(app, secrets=[SECRET]):
            pass


async def test_two_hosts_of_one_app_have_two_stores() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with (
            ActorHost.open("memory:", origin="https://a.example", secrets=[SECRET]) as one,
            ActorHost.open("memory:", origin="https://a.example", secrets=[SECRET]) as two,
        ):
            await one.scheduler("one").run_after("1d", "a:one")
            await two.scheduler("two").run_after("1d", "a:two")
            assert not (await two.scheduler("one").list()).records
            for _ in ("startup", "shutdown"):
                message = await receive()
                await send({"type": f"{message['type']}.complete"})

    async with lab(app) as t:
        assert [(job.function_path) for job in await t.scheduled()] == ["a:one", "a:two"]
        await t.assert_scheduled("a:two", scheduler="two", count=1)
    assert isinstance(t, Lab)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_an_app_with_several_stores_has_several_in_the_lab_with_its_rules(
    store: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    refused: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        stores = {"default": "sqlite:///here.db", "eu": "sqlite:///eu.db"}
        rules = {"eu-*": "eu", "us-*": "refuse"}
        async with ActorHost.open(stores, residency=rules, origin="https://a.example", secrets=[SECRET]) as host:
            await host.scheduler("eu-1").run_after("1d", "a:eu")
            await host.scheduler("other").run_after("1d", "a:other")
            try:
                await host.scheduler("us-1").run_after("1d", "a:us")
            except ResidencyError as error:
                refused.append(error.message)
            for _ in ("startup", "shutdown"):
                message = await receive()
                await send({"type": f"{message['type']}.complete"})

    async with lab(app, store=store) as t:
        assert sorted(str(job.function_path) for job in await t.scheduled()) == ["a:eu", "a:other"]
        await t.assert_scheduled("a:eu", scheduler="eu-1", count=1)
    assert len(refused) == 1
    assert not os.listdir(tmp_path)


async def test_a_wsgi_app_is_tested_behind_an_adapter() -> None:
    flask = Flask("shop")
    receiver = Receiver([SECRET])
    flask.post("/_tocsin/callback")(receiver.flask_view)
    got: list[Any] = []

    @receiver.handler("a:b")
    def handle(args: Any) -> None:
        got.append(args)

    async with lab(cast(Any, WsgiToAsgi)(flask), secrets=[SECRET], start=START) as t:
        await t.scheduler().run_after("3d", "a:b", {"n": 1})
        await t.advance("3d")
        assert t.deliveries[0].ok, t.deliveries[0].answer
    assert got == [{"n": 1}]
