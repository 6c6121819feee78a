"""Apps that reach a scheduler over HTTP: work that ends later, workers and clients of a server, in a lab."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi import FastAPI

from tests.actors.testing.lab.shop import SECRET
from tocsin import Accepted, ActorHost, Client, LeaseClient, Received, Receiver, SyncClient, Worker
from tocsin.testing import lab

pytestmark = pytest.mark.anyio
START = datetime(2027, 1, 1, tzinfo=UTC)


async def test_work_that_ends_later_completes_through_the_app_s_own_mount() -> None:
    host = ActorHost.open("sqlite:///a.db", origin="https://app.example", secrets=[SECRET])
    receiver = Receiver([SECRET])
    leases = LeaseClient("http://127.0.0.1:8000/jobs", dedup=receiver.dedup)
    working: set[asyncio.Task[None]] = set()

    @receiver.handler("videos:encode")
    async def encode(args: Any, job: Received) -> Accepted:
        working.add(asyncio.create_task(work(job)))
        return Accepted(lease_ms=600_000)

    async def work(job: Received) -> None:
        await asyncio.sleep(300)
        await leases.extend(job.leased, 600_000)
        await asyncio.sleep(300)
        await leases.complete(job.leased, result={"frames": 1200})

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with host.lifespan(app), leases, receiver:
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/_tocsin", receiver)
    app.mount("/jobs", host.asgi(tokens="ops:admin:choose-a-long-secret"))
    for _ in range(2):
        async with lab(app, start=START, patience=0) as t:
            id = await t.scheduler().run_after("1h", "videos:encode", keep_result="1h")
            assert await t.until(t.scheduler().result(id)) == {"frames": 1200}
            assert (t.now - START).total_seconds() == 3600 + 600
    assert leases._transport is None


async def test_an_app_beside_a_server_reaches_the_host_of_the_lab() -> None:
    receiver = Receiver([SECRET])
    client = Client("https://tocsin.example", token="secret-of-the-server")
    jobs = client.scheduler()
    got: list[Any] = []

    @receiver.handler("a:b")
    async def handle(args: Any) -> None:
        got.append(args)

    async with lab(receiver, secrets=[SECRET], start=START) as t:
        await jobs.run_after("1d", "a:b", {"n": 1})
        async with Worker(jobs, {"a:c": got.append}):
            await jobs.run_after("1h", "a:c", {"n": 2}, queue="q")
            await t.advance("2d")
            before = t.moves
            await t.advance("30d")  # whatever waits for jobs on both sides of a request
            assert t.moves - before <= 3
        assert len(await t.dead()) == 0
        await client.aclose()
    assert got == [{"n": 2}, {"n": 1}]


async def test_a_function_in_a_thread_schedules_with_a_client_that_blocks() -> None:
    client = SyncClient("https://tocsin.example", token="secret-of-the-server")
    got: list[Any] = []

    def first(args: Any) -> None:
        client.scheduler().run_after("1d", "a:next", {"n": args["n"] + 1})

    async with lab({"a:first": first, "a:next": got.append}, start=START) as t:
        await t.scheduler().run_after("1d", "a:first", {"n": 1})
        await t.advance("1d")
        await t.assert_scheduled("a:next", after="1d")
        await t.advance("1d")
    client.close()
    assert got == [{"n": 2}]


async def test_a_client_reaches_the_lab_of_its_app_though_another_lab_was_opened_later() -> None:
    client = Client("https://tocsin.example")

    async def again(args: Any) -> None:
        await client.scheduler().run_after("1d", "a:next")

    async with lab({"a:first": again}, start=START) as t, lab() as later:
        await t.scheduler().run_after("1d", "a:first")
        await t.advance("1d")
        await t.assert_scheduled("a:next")
        await later.refute_scheduled("a:next")
        await client.aclose()
