"""A lab for plain functions: clients that block, and drains, in the test's own thread."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgiref.wsgi import WsgiToAsgi

from tests.actors.testing.lab.shop import SECRET
from tocsin import Client, Drain, Outbox, Signer, SQLiteDatabase, SyncClient
from tocsin.errors import SettingsError
from tocsin.testing import SyncLab, lab

START = datetime(2027, 1, 1, tzinfo=UTC)


def test_a_client_that_blocks_is_answered_in_the_thread_of_the_test() -> None:
    got: list[Any] = []
    with SyncClient("https://tocsin.example") as client, SyncLab({"a:b": got.append}, start=START) as t:
        jobs = client.scheduler("shop")
        jobs.run_after("1h", "a:b", {"n": 1})
        before = t.now
        assert jobs.dead().records == []
        with jobs.deferred() as later:
            later.run_after("2h", "a:b", {"n": 2})
        assert t.now == before
        t.advance("2h")
        assert got == [{"n": 1}, {"n": 2}]


def test_its_errors_come_back_too() -> None:
    with SyncClient() as client, SyncLab() as t:
        client.scheduler().run_after("1h", "a:b", id="one")
        with pytest.raises(Exception, match="'one' is taken"):
            client.scheduler().run_after("1h", "a:b", id="one")
        t.assert_scheduled("a:b")


def test_another_thread_is_served_while_the_test_runs_the_loop() -> None:
    with SyncClient() as client, SyncLab() as t:
        t.run(asyncio.to_thread(client.scheduler().run_after, "1h", "a:b"))
        t.assert_scheduled("a:b")


@pytest.mark.parametrize("blocking", ["in the lab's loop", "in another loop of its thread"])
def test_a_client_that_blocks_the_loop_of_the_lab_is_refused_at_once(blocking: str) -> None:
    with SyncClient() as client, SyncLab() as t:

        async def ask() -> None:
            client.scheduler().dead()

        with pytest.raises(SettingsError, match=r"in a coroutine use a Client, or `await asyncio.to_thread"):
            if blocking == "in the lab's loop":
                t.run(ask())
            else:
                asyncio.run(ask())
        assert client.scheduler().dead().records == []


def test_a_client_with_a_transport_of_its_own_is_left_alone() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"of": str(request.url)})

    with SyncClient("https://a.example", transport=httpx.MockTransport(answer)) as client, SyncLab() as t:

        async def ask() -> Any:
            return client.openapi()

        assert t.run(ask()) == client.openapi() == {"of": "https://a.example/openapi.json"}


def test_an_interrupted_call_is_cancelled_and_the_lab_goes_on() -> None:
    cancelled = threading.Event()
    with SyncClient() as client, SyncLab() as t:

        async def never(_: Client) -> None:
            t.lab._clock.loop.call_soon_threadsafe(_interrupt)
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        with pytest.raises(KeyboardInterrupt):
            client._blocking.call(never)
        assert cancelled.is_set()
        assert client.scheduler().dead().records == []


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_a_wrapper_of_wsgi_has_no_lifespan_and_that_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    wrapped: Any = WsgiToAsgi(app)  # type: ignore[no-untyped-call]
    with caplog.at_level("INFO", "tocsin.testing"), SyncLab(wrapped, secrets=[SECRET]) as t:
        t.scheduler().run_after("1h", "a:b", {"n": 1})
        t.advance("1h")
        [one] = t.deliveries
    assert one.ok
    assert caplog.messages == []
    Signer([SECRET]).verify(one.headers, one.raw, now_s=one.at / 1000)  # it can be delivered again as it was signed
    assert json.loads(one.raw)["args"] == {"n": 1}


# ---- Drains --------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> SQLiteDatabase:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        for statement in Outbox().schema("sqlite"):
            db.execute(statement)
        db.execute(*Outbox("shop").run_after("5m", "a:b", {}, id="one").qmark)
    return SQLiteDatabase(str(path))


@pytest.mark.parametrize("kind", ["host", "scheduler", "client", "the lab"])
def test_a_drain_takes_what_a_lab_for_plain_functions_hands_out(kind: str, table: SQLiteDatabase) -> None:
    with SyncLab() as t:

        async def drain() -> int:
            given = {"host": t.host, "scheduler": scheduler, "client": Client(), "the lab": t}
            async with Drain(table, given[kind]) as one:
                return await one.run_once()

        scheduler = t.scheduler("shop")
        assert t.run(drain()) == 1
        assert [one.id for one in t.scheduled()] == ["one"]


@pytest.mark.anyio
async def test_a_drain_takes_what_a_lab_hands_out(table: SQLiteDatabase) -> None:
    async with lab() as t, Drain(table, t.host) as one:
        assert await one.run_once() == 1


class AlmostTarget:
    name = "t"

    async def submit_batch(self, jobs: object, key: str) -> None: ...


class AlmostTargets:
    def scheduler(self, name: str = "default") -> AlmostTarget:
        return AlmostTarget()


@pytest.mark.parametrize(
    "wrong",
    [SyncClient(), SyncClient().scheduler("shop"), AlmostTarget(), AlmostTargets(), "https://tocsin.example", None],
    ids=lambda wrong: type(wrong).__name__,
)
def test_a_drain_refuses_a_wrong_target_when_it_is_made(wrong: Any, table: SQLiteDatabase) -> None:
    kind = type(wrong).__name__
    with pytest.raises(SettingsError, match=rf"^jobs must be a Scheduler, an ActorHost, a Client .*, not {kind}$"):
        Drain(table, wrong)
