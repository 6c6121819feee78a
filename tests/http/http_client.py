"""A client of the HTTP API of a real host: memory or SQLite below, a receiver in the same process, no socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from tests.engine_below import BELOW
from tocsin.actors.actor_host import ActorHost
from tocsin.actors.scheduler.actor.scheduler_actor import SchedulerActor
from tocsin.dispatch.asgi_transport import AsgiTransport
from tocsin.storage.api import StoreProvider

ORIGIN = "http://127.0.0.1:9"
SECRET = b"a signing secret for tests only"
DUE = 1_900_000_000_000
PATIENCE_S = 10.0


@dataclass
class Receiver:
    """Answers 204; a function path like `answer:410` chooses another status."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.raw.append(await request.body())
        self.bodies.append(await request.json())
        path = str(self.bodies[-1].get("functionPath"))
        status = int(path.removeprefix("answer:")) if path.startswith("answer:") else 204
        await Response(status_code=status)(scope, receive, send)


@dataclass
class HttpClient:
    """A client of the app of an open host."""

    host: ActorHost
    client: httpx.AsyncClient
    receiver: Receiver

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(path, **more)

    async def post(self, path: str, json: Any = None, **more: Any) -> httpx.Response:
        return await self.client.post(path, json=json, **more)

    async def schedule(self, place: str = "", **members: Any) -> dict[str, Any]:
        """An accepted job, far in the future if no time is given."""
        timed = members.keys() & {"scheduledFor", "delayMs"}
        body = {"functionPath": "p", **({} if timed else {"scheduledFor": DUE}), **members}
        answer = await self.post(f"{place}/schedule", body)
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value

    async def bury(self, id: str) -> None:
        """A job that is dead when this returns."""
        await self.schedule(id=id, functionPath="answer:410", delayMs=0)
        await self.until(id, "dead")

    async def until(self, id: str, state: str | None) -> None:
        """Wait until a job has that state, or is gone."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                record = (await self.get("/get", params={"id": id})).json().get("record")
                if (record and record["state"]) == state:
                    return
                await asyncio.sleep(0.01)


def client_of(app: Any, *, base: str = "http://localhost", token: str | None = None) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base, headers=headers)


@asynccontextmanager
async def open_host(
    store: str | StoreProvider | None = None, **options: Any
) -> AsyncIterator[tuple[ActorHost, Receiver]]:
    receiver = Receiver()
    settings: dict[str, Any] = {"origin": ORIGIN, "secrets": [SECRET], "transport": AsgiTransport(receiver), **options}
    async with ActorHost.open(BELOW.url() if store is None else store, **settings) as host:
        yield host, receiver


@asynccontextmanager
async def open_http_client(store: str | StoreProvider | None = None, **options: Any) -> AsyncIterator[HttpClient]:
    async with open_host(store, **options) as (host, receiver), client_of(host.asgi(insecure=True)) as client:
        yield HttpClient(host, client, receiver)


def activations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one with every scheduler that is built from here on."""
    built: list[str] = []
    original = SchedulerActor.on_start

    async def counted(self: SchedulerActor) -> None:
        built.append(self.ctx.id.name)
        await original(self)

    monkeypatch.setattr(SchedulerActor, "on_start", counted)
    return built


def refused(answer: httpx.Response, status: int, code: str, *words: str) -> dict[str, Any]:
    """Check an error envelope and its message; its members."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    value = answer.json()
    assert list(value) == ["error"]
    error: dict[str, Any] = value["error"]
    assert error["code"] == code, error
    for word in words:
        assert word in error["message"], error
    return error


def paths_of(app: Starlette) -> set[str]:
    """Return all paths that an app of a host answers."""
    return {path for route in app.routes for path in getattr(route, "paths", [getattr(route, "path", "")])}
