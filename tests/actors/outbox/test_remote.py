"""A drain whose scheduler is a server: over HTTP it gets the same answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.actors.outbox.app import SteppedFile, Steps, opened
from tocsin import Client
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.outbox.drain import Drain
from tocsin.actors.outbox.entry import Outbox
from tocsin.actors.outbox.remote import OutboxClient, RemoteTarget
from tocsin.actors.outbox.submit_batch import Rests
from tocsin.errors import IdempotencyMismatchError, SettingsError, UnauthenticatedError, UnreachableError

pytestmark = pytest.mark.anyio
TOKEN = "a-token-of-the-test"


class Lossy(httpx.ASGITransport):
    """Loses an answer, once, if `meanwhile` is set: what happens before it is asked again."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
            raise httpx.ReadError("lost")
        return answer


@asynccontextmanager
async def served(
    folder: Path, kind: Callable[..., Any] = OutboxClient, *, token: str = TOKEN, **options: Any
) -> AsyncIterator[tuple[ActorHost, Any]]:
    with opened(folder / "app.db") as db:
        for sql in Outbox().schema("sqlite"):
            db.execute(sql)
    async with ActorHost.open("memory:", **options) as host:
        app = host.asgi(tokens=[f"app:schedule+read:{TOKEN}"])
        async with kind("http://tocsin.example", token=token, transport=Lossy(app)) as client:
            yield host, client


each_client = pytest.mark.parametrize("kind", [OutboxClient, Client])


def write(folder: Path, n: int, instance: str = "default", **options: Any) -> None:
    with opened(folder / "app.db") as db:
        db.execute(*Outbox(instance).run_after("1h", "a:b", n, queue="q", **options).qmark)


def left(folder: Path, columns: str) -> list[Any]:
    with opened(folder / "app.db") as db:
        return db.execute(f"SELECT {columns} FROM tocsin_outbox ORDER BY id").fetchall()


def draining(folder: Path, client: OutboxClient | Client) -> Drain:
    return Drain(SteppedFile(folder / "app.db", Steps()), client)


@each_client
async def test_rows_come_to_the_instances_of_a_server_and_refusals_back(tmp_path: Path, kind: type) -> None:
    async with served(tmp_path, kind) as (host, client):
        await host.scheduler("a").run_after("1h", "a:b", id="taken", queue="q")
        write(tmp_path, 1, "a")
        write(tmp_path, 2, "a", id="taken")
        write(tmp_path, 3, "b")
        write(tmp_path, 4, "b", initiator="ann")
        with opened(tmp_path / "app.db") as db:
            db.execute("INSERT INTO tocsin_outbox (id, instance, job, created_at) VALUES ('~', 'b', '{', 0)")
        assert await draining(tmp_path, client).run_once() == 2
        errors = sorted((tries, error.partition(": ")[::2]) for tries, error in left(tmp_path, "tries, error"))
        assert [(tries, code) for tries, (code, _) in errors] == [
            (1, "DUPLICATE_SCHEDULE_ID"),
            (1, "INVALID_INPUT"),
            (1, "INVALID_JSON"),
        ]
        assert "initiator" in errors[1][1][1]
        assert [(await host.scheduler(name).status()).backlog for name in "ab"] == [2, 1]


@each_client
async def test_an_answer_that_was_lost_is_got_by_asking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    monkeypatch.setattr(Rests, "begin", lambda rests, instance: 0)  # at once
    async with served(tmp_path, kind) as (host, client):
        jobs = host.scheduler()

        async def cancel() -> None:
            [record] = (await jobs.list()).records
            await jobs.cancel(record.id)  # its id is free again

        way = getattr(client, "_server", client)._transport
        assert isinstance(way, Lossy)
        way.meanwhile = cancel
        write(tmp_path, 1)
        assert await draining(tmp_path, client).run_once() == 1
        assert (left(tmp_path, "id"), (await jobs.status()).backlog) == ([], 0)


async def test_it_knows_what_a_server_knows(tmp_path: Path) -> None:
    async with served(tmp_path) as (host, client):
        jobs, remote = host.scheduler(), client.scheduler()
        await jobs.run_after("1h", "a:b", id="live", queue="q")
        await jobs.run_after("1h", "a:b", id="ended", queue="q")
        await jobs.cancel("ended")
        assert [await remote.knows(one, None) for one in ("live", "ended", "never")] == [True, True, False]
        assert [await remote.knows(one, 2**50) for one in ("live", "ended")] == [False, False]


async def test_another_batch_under_its_key_is_told_apart(tmp_path: Path) -> None:
    job = '{"functionPath":"a:b","scheduledFor":1893456000000,"queue":"q"}'
    async with served(tmp_path) as (_, client):
        remote = client.scheduler()
        await remote.submit_batch([("r1", job), ("r2", job)], "key")
        with pytest.raises(IdempotencyMismatchError):
            await remote.submit_batch([("r1", job)], "key")


@each_client
async def test_a_server_that_does_not_let_it_in_is_an_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type
) -> None:
    async with served(tmp_path, kind, token="a-wrong-token") as (_, client):
        write(tmp_path, 1)
        assert await draining(tmp_path, client).run_once() == 0
        assert left(tmp_path, "tries, parked_at") == [(0, None)]
        assert UnauthenticatedError.__name__ in caplog.text
        assert "a-wrong-token" not in caplog.text + repr(client)


async def test_what_is_no_tocsin_server_is_unreachable() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return {
            "/i/a/schedule/batch": httpx.Response(200, json={"results": []}),
            "/i/a/get": httpx.Response(200, content=b"<html>"),
            "/i/a/history": httpx.Response(502),
        }[request.url.path]

    async with OutboxClient(transport=httpx.MockTransport(answer)) as client:
        target = RemoteTarget(client, "a")
        with pytest.raises(UnreachableError, match="each of 1 jobs"):
            await target.submit_batch([("r", "{}")], "k")
        for route in ("get", "history"):
            with pytest.raises(UnreachableError):
                await client.get("a", route)


def test_urls_and_tokens_that_cannot_be_used_are_refused() -> None:
    for url in ("", "ftp://x", "http://u:p@x", "http://x?y"):
        with pytest.raises(SettingsError, match="base_url"):
            OutboxClient(url)
    with pytest.raises(SettingsError, match="token must be printable") as caught:
        OutboxClient(token="sec ret")
    assert "sec ret" not in str(caught.value)
