"""A crash in a lab: the app and its hosts end at once, and start again on what was stored."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.actors.testing.lab.shop import Shop
from tocsin import ActorHost, MemoryDedup, Received, Receiver, SQLiteDedup
from tocsin.errors import HostClosedError
from tocsin.testing import lab

pytestmark = pytest.mark.anyio
SECRETS = ["whsec_" + "c2VjcmV0IG9mIGF0IGxlYXN0IDI0IGJ5dGVz"]
START = datetime(2027, 1, 1, tzinfo=UTC)
STORES = pytest.mark.parametrize("store", ["memory", "sqlite"])


@STORES
async def test_what_was_answered_outlives_a_crash(store: Any) -> None:
    shop = Shop()
    async with lab(shop.app, start=START, store=store) as t:
        before = t.scheduler()
        for user in range(50):
            await t.client.post(f"/carts/{user}")
        await t.scheduler().schedules.put("digest", cron="0 8 * * *", path="digests:send")
        await t.crash()

        assert (t.now, shop.starts, len(shop.hosts)) == (START, 2, 2)
        await t.assert_scheduled("carts:remind", count=50)
        with pytest.raises(HostClosedError):
            await before.run_after("1d", "a:b")
        await t.advance("3d")
    assert sorted(Counter(shop.did).values()) == [1] * 53


@STORES
async def test_an_attempt_that_a_crash_ended_is_sent_again_when_its_lease_ends(store: Any) -> None:
    shop = Shop()
    began: list[tuple[int, datetime]] = []

    async def slow(args: Any, job: Received) -> None:
        began.append((job.attempt, t.now))
        await asyncio.sleep(20)
        shop.did.append(("done", job.attempt))

    shop.handlers["a:slow"] = slow
    async with lab(shop.app, start=START, store=store, patience=0) as t:
        await t.scheduler().run_after(0, "a:slow")
        await t.advance("5s")
        await t.crash()
        await t.run_until_idle()
    assert [attempt for attempt, _ in began] == [1, 2]
    assert began[1][1] - began[0][1] == timedelta(seconds=75)
    assert shop.did == [("done", 2)]


async def test_a_crash_between_any_two_steps_loses_and_doubles_nothing() -> None:
    shop = Shop()
    async with lab(shop.app, start=START) as t:
        for number in range(60):
            await t.scheduler().run_after(number, "images:shrink", {"image": number}, queue="images")
            await t.scheduler().run_after(number, "carts:remind", {"user": number})
        for _ in range(12):
            await t.advance("5s")
            await t.crash()
        await t.advance("10m")
        assert not await t.scheduled()
    assert Counter(shop.did) == Counter([(kind, n) for kind in ("shrink", "remind") for n in range(60)])


async def test_a_function_in_a_thread_is_waited_for_in_a_crash() -> None:
    shop = Shop()
    begun, go_on = threading.Event(), threading.Event()

    def slow(args: Any, job: Received) -> None:
        if job.attempt == 1:
            begun.set()
            assert go_on.wait(10)
        shop.did.append(("done", job.attempt))

    shop.handlers["a:slow"] = slow
    async with lab(shop.app, start=START) as t:
        advancing = asyncio.create_task(t.advance("1s"))
        await t.scheduler().run_after(0, "a:slow")
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, 10)
        threading.Timer(0.02, go_on.set).start()
        await t.crash()
        await advancing
        await t.run_until_idle()
    assert shop.did == [("done", 1), ("done", 2)]


async def test_an_app_that_was_made_before_starts_again_as_it_is() -> None:
    shop = Shop()
    app = shop.app()
    async with lab(app, start=START) as t:
        jobs = t.scheduler()
        await t.client.post("/carts/anna")
        await t.crash()
        await t.crash()
        assert shop.starts == 3
        await jobs.run_after("1d", "carts:remind", {"user": "ben"})
        await t.advance("2d")
    assert shop.did == [("remind", "ben"), ("remind", "anna")]


async def test_handlers_without_an_app_crash_too() -> None:
    got: list[int] = []

    async def slow(args: Any, job: Received) -> None:
        await asyncio.sleep(10)
        got.append(job.attempt)

    async with lab({"a:slow": slow}, start=START, patience=0) as t:
        await t.scheduler().run_after(0, "a:slow")
        await t.advance("1s")
        await t.crash()
        await t.run_until_idle()
    assert got == [2]


@pytest.mark.parametrize("kept", ["memory", "sqlite"])
async def test_a_global_app_crashes_in_the_midst_of_a_handler_and_serves_the_next_lab(
    kept: str, tmp_path: Path
) -> None:
    host = ActorHost.open(f"sqlite:///{tmp_path / 'jobs.db'}", origin="https://a.example", secrets=SECRETS)
    receiver = Receiver(SECRETS, dedup=SQLiteDedup(tmp_path / "received.db") if kept == "sqlite" else MemoryDedup())
    got: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with host.lifespan(app), receiver:
            yield

    @receiver.handler("a:slow")
    async def slow(args: Any, job: Received) -> None:
        got.append(f"{args} begun {job.attempt}")
        try:
            await asyncio.sleep(5)
            got.append(f"{args} done {job.attempt}")
        finally:
            await asyncio.sleep(0)  # a handler may clean up

    app = Starlette(lifespan=lifespan, routes=[Mount("/_tocsin", receiver)])
    for name in ("one", "two"):
        async with lab(app, start=START) as t:
            await t.scheduler("x").run_after("1h", "a:slow", name)
            await t.advance("1h")
            await t.crash()
            await t.advance("1h")
            assert (await t.dead(), await t.scheduled()) == ([], [])
    assert got == [f"{name} {what}" for name in ("one", "two") for what in ("begun 1", "begun 2", "done 2")]
