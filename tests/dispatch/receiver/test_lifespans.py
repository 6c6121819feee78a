"""A receiver that is entered again works again, as in tests that start their app often, or says why it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.dispatch.receiver.signed_callbacks import ReceiverFixture
from tocsin import ActorHost, LeaseClient, MemoryDedup, NoDedup, SQLiteDedup
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.outcome import classify
from tocsin.dispatch.receiver.dedup import Dedup
from tocsin.errors import SettingsError, StoreClosed, UnreachableError

pytestmark = pytest.mark.anyio


def counting(dedup: Dedup | None) -> tuple[ReceiverFixture, list[int]]:
    fixture, runs = ReceiverFixture(dedup), list[int]()
    fixture.receiver.register({"invoices:send": runs.append})  # in a thread
    return fixture, runs


Use = Callable[[httpx.AsyncClient], Awaitable[None]]


def live(app: Any, use: Use) -> list[str]:
    """One life of an app, in an event loop of its own as servers and test clients have; what its lifespan said."""
    said: list[str] = []

    async def run() -> None:
        told, heard = asyncio.Queue[dict[str, Any]](), asyncio.Queue[Any]()
        task = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, told.get, heard.put))
        for step in ("startup", "shutdown"):
            told.put_nowait({"type": f"lifespan.{step}"})
            answer = await heard.get()
            said.append(f"{answer['type']} {answer.get('message', '')}".strip())
            if step == "startup" and answer["type"] == "lifespan.startup.complete":
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
                    await use(client)
            elif step == "startup":
                break
        await task

    asyncio.run(run())
    return said


LIVED = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def sent(client: httpx.AsyncClient, fixture: ReceiverFixture, args: int, **more: Any) -> int:
    headers, body = fixture.scheduler.request(args, **more)
    return (await client.post("/_tocsin/callback", headers=headers, content=body)).status_code


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("store", ["memory", "file", "none"])
def test_an_app_that_is_started_again_takes_callbacks_again(store: str, mounted: bool, tmp_path: Path) -> None:
    """In another event loop each time, with what was done before still known."""
    stores: dict[str, Dedup] = {"memory": MemoryDedup(), "file": SQLiteDedup(tmp_path / "d.db"), "none": NoDedup()}
    fixture, runs = counting(stores[store])

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with fixture.receiver:
            yield

    app: Any = (
        Starlette(routes=[Mount("/_tocsin", fixture.receiver)], lifespan=lifespan) if mounted else fixture.receiver
    )
    for n in range(3):

        async def use(client: httpx.AsyncClient, n: int = n) -> None:
            assert await sent(client, fixture, n, incarnation=f"i{n}") == 200
            assert await sent(client, fixture, 9, incarnation="i0") == 200

        assert live(app, use) == LIVED

    assert [n for n in runs if n != 9] == [0, 1, 2]
    assert runs.count(9) == (3 if store == "none" else 0)


async def test_a_receiver_that_is_closed_asks_to_come_again_and_may_be_opened(dedup: Dedup) -> None:
    fixture, runs = counting(dedup)
    await fixture.receiver.aclose()
    assert classify(await fixture.send(1), 0).verdict is Verdict.BUSY
    fixture.receiver.open()
    fixture.receiver.open()  # is open

    assert (await fixture.send(2)).status == 200 and runs == [2]


async def test_entered_twice_it_is_closed_by_the_last_who_leaves() -> None:
    fixture, _ = counting(None)
    async with fixture.receiver:
        async with fixture.receiver:
            pass
        assert (await fixture.send(1)).status == 200
    assert (await fixture.send(2)).status == 503


async def test_while_it_is_being_closed_it_cannot_be_entered() -> None:
    fixture, begun, go = ReceiverFixture(), asyncio.Event(), asyncio.Event()

    @fixture.receiver.handler("invoices:send")
    async def send(args: Any) -> None:
        begun.set()
        await go.wait()

    caller = asyncio.create_task(fixture.send())
    await begun.wait()
    closing = asyncio.create_task(fixture.receiver.aclose())
    await asyncio.sleep(0)
    with pytest.raises(
        SettingsError, match=r"still being closed: await its aclose\(\), .* and enter it again when that"
    ):
        await fixture.receiver.__aenter__()
    go.set()
    await asyncio.gather(closing, caller)
    async with fixture.receiver:
        assert (await fixture.send()).status == 200


@pytest.mark.parametrize("cuts", [1, 3])
async def test_a_close_that_is_cut_off_ends_its_handlers_and_may_be_entered_again(cuts: int, dedup: Dedup) -> None:
    fixture, begun, ends = ReceiverFixture(dedup), asyncio.Event(), list[str]()

    @fixture.receiver.handler("invoices:send")
    async def send(args: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(0 if args == 2 else 3_600)
        finally:
            ends.append(f"{args}")

    async with asyncio.timeout(30):
        caller = asyncio.create_task(fixture.send(1))
        await begun.wait()
        closing = asyncio.create_task(fixture.receiver.aclose())
        for _ in range(cuts):
            await asyncio.sleep(0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert classify(await caller, 0).verdict is Verdict.BUSY and ends == ["1"]
        async with fixture.receiver:
            assert (await fixture.send(2)).status == 200


async def test_a_close_whose_store_fails_tells_and_is_closed() -> None:
    class Full(MemoryDedup):
        async def aclose(self) -> None:
            raise OSError("no space is left")

    receiver = ReceiverFixture(Full()).receiver
    with pytest.raises(OSError, match="no space is left"):
        await receiver.aclose()
    receiver.open()


class ForOneLife:
    """A user's store that hangs up for good."""

    def __init__(self) -> None:
        inner = MemoryDedup()
        self.claim, self.hold, self.finish, self.release = inner.claim, inner.hold, inner.finish, inner.release
        self.answer = inner.answer

    async def aclose(self) -> None:
        """Nobody can use it any more."""


def test_a_store_that_cannot_be_opened_again_is_named_at_the_start() -> None:
    fixture, _ = counting(ForOneLife())

    async def use(client: httpx.AsyncClient) -> None:
        assert await sent(client, fixture, 1) == 200

    assert live(fixture.receiver, use) == LIVED
    why = "ForOneLife was closed with this receiver, and has no reopen(): make another receiver"
    assert live(fixture.receiver, use) == [f"lifespan.startup.failed {why}"]


async def test_a_file_that_was_closed_is_used_again_only_when_it_was_reopened(tmp_path: Path) -> None:
    dedup = SQLiteDedup(tmp_path / "d.db")
    await dedup.answer("a:1", now_ms=0)
    await dedup.aclose()
    with pytest.raises(StoreClosed):
        await dedup.answer("a:1", now_ms=0)
    dedup.reopen()

    assert await dedup.answer("a:1", now_ms=0) is None
    await dedup.aclose()


async def test_a_client_of_leases_that_was_closed_connects_again() -> None:
    fixture, _ = counting(None)
    job = fixture.receiver.verify(*fixture.scheduler.request())
    leases = LeaseClient("http://127.0.0.1:9", patience_s=0)
    for _ in range(2):
        async with leases:
            with pytest.raises(UnreachableError):
                await leases.complete(job)


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_a_host_and_its_receiver_in_one_app_that_is_started_again_work_again(url: str, tmp_path: Path) -> None:
    fixture, _ = counting(None)
    host = ActorHost.open(f"sqlite:///{tmp_path / 'jobs.db'}" if url == "sqlite" else url)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with host.lifespan(app), fixture.receiver:
            yield

    app = Starlette(routes=[Mount("/jobs", host.asgi(insecure=True))], lifespan=lifespan)
    for n in range(2):

        async def use(client: httpx.AsyncClient, n: int = n) -> None:
            job = {"id": f"j{n}", "functionPath": "a:b", "queue": "q", "delayMs": 0}
            assert (await client.post("/jobs/schedule", json=job)).status_code == 200
            asked = {"max": 1, "leaseMs": 9_000, "worker": {"id": "w"}}
            claimed = await client.post("/jobs/queues/q/claim", json=asked)
            assert [one["id"] for one in claimed.json()["jobs"]] == [f"j{n}"]

        assert live(app, use) == LIVED
