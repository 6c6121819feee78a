"""A caller that hangs up: what it wanted to read is read no further, what it wanted to be done is done."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from tests.http.http_client import DUE, HttpClient
from tests.http.route_requests import REQUESTS
from tocsin.storage.api import Range, Row
from tocsin.storage.memory import MemoryProvider

pytestmark = pytest.mark.anyio

PATIENCE_S = 10.0
READS = sorted(
    path for path, (method, *_) in REQUESTS.items()
    if method == "GET" and not path.startswith(("/workers", "/catalog", "/cron"))
)  # fmt: skip
"""Those that read the store."""


class Caller:
    """Sends a request to an app and hangs up when it is told to."""

    def __init__(self, app: Any, method: str, path: str, body: Any = None) -> None:
        place = urlsplit(path)
        text = b"" if body is None else json.dumps(body).encode()
        self._scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": place.path, "raw_path": place.path.encode(), "query_string": place.query.encode(), "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }  # fmt: skip
        self._app = app
        self._messages = [{"type": "http.request", "body": text, "more_body": False}]
        self.left = asyncio.Event()
        self.sent: list[Any] = []

    def hang_up_at_once(self) -> None:
        """Before its body is sent."""
        self._messages.clear()
        self.left.set()

    async def __call__(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    async def _receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


class Stuck:
    """Reads of the store beside the actor's turns do not return; how many were begun and broken off."""

    def __init__(self) -> None:
        self.nth: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.ended = asyncio.Event()
        self.begun = self.broken_off = 0

    async def scan_many(self, ranges: Sequence[Range], **_: Any) -> list[list[Row]]:
        await self._wait()
        return []

    async def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        await self._wait()
        return {}

    async def scan(self, start: bytes, end: bytes, **_: Any) -> list[Row]:
        await self._wait()
        return []

    async def _wait(self) -> None:
        self.begun += 1
        self.nth[self.begun].set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.broken_off += 1
            self.ended.set()
            raise


@pytest.mark.parametrize("path", READS)
async def test_a_read_ends_when_its_caller_hangs_up(
    path: str, http_client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck()
    monkeypatch.setattr(MemoryProvider, "view", lambda self, name: stuck)
    caller = Caller(http_client.host.asgi(insecure=True), "GET", "/i/t" + path)
    request = asyncio.create_task(caller())
    async with asyncio.timeout(PATIENCE_S):
        await stuck.nth[1].wait()
        caller.left.set()
        await request
        await stuck.ended.wait()
    assert stuck.broken_off == 1


async def test_what_a_caller_wanted_to_be_done_is_done_although_it_hangs_up(
    http_client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the disk, when its turn is over and nothing can call it back."""
    hold, reached = asyncio.Event(), asyncio.Event()
    hop = MemoryProvider.hop

    async def held(self: MemoryProvider) -> None:
        reached.set()
        await hold.wait()
        await hop(self)

    app = http_client.host.asgi(insecure=True)
    monkeypatch.setattr(MemoryProvider, "hop", held)
    body = {"functionPath": "p", "scheduledFor": DUE, "id": "a"}
    caller = Caller(app, "POST", "/schedule", body)
    request = asyncio.create_task(caller())
    async with asyncio.timeout(PATIENCE_S):
        await reached.wait()
        caller.left.set()
        await asyncio.sleep(0)
        hold.set()
        await request
    assert (await http_client.get("/get?id=a")).json()["record"]["id"] == "a"
    assert caller.sent[0]["status"] == 200


async def test_pages_are_made_two_at_a_time_and_who_leaves_the_queue_costs_nothing(
    http_client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one keeps the loop busy for some milliseconds, whoever waits for it; due jobs come in between."""
    await http_client.schedule("/i/t", id="a")
    stuck, app = Stuck(), http_client.host.asgi(insecure=True)
    monkeypatch.setattr(MemoryProvider, "view", lambda self, name: stuck)
    callers = [Caller(app, "GET", f"/i/t{path}") for path in ("/list", "/dead", "/list?order=id", "/list")]
    requests = [asyncio.create_task(caller()) for caller in callers]
    async with asyncio.timeout(PATIENCE_S):
        await stuck.nth[2].wait()
        for caller in callers[2:]:
            caller.left.set()
        await asyncio.gather(*requests[2:])
        assert (stuck.begun, stuck.broken_off) == (2, 0)
        last = Caller(app, "GET", "/i/t/list")
        requests.append(asyncio.create_task(last()))
        callers[0].left.set()
        await stuck.nth[3].wait()
        for caller in (callers[1], last):
            caller.left.set()
        await asyncio.gather(*requests)
    monkeypatch.undo()
    assert len((await http_client.get("/i/t/list")).json()["records"]) == 1


async def test_who_leaves_before_its_request_is_there_is_answered_to_the_app_around(http_client: HttpClient) -> None:
    """Middleware of Starlette raises where it gets no answer; nobody else hears of this one."""
    seen: list[int] = []

    async def around(request: Request, go_on: RequestResponseEndpoint) -> Response:
        answer = await go_on(request)
        seen.append(answer.status_code)
        return answer

    caller = Caller(BaseHTTPMiddleware(http_client.host.asgi(insecure=True), around), "POST", "/schedule", {"id": "a"})
    caller.hang_up_at_once()
    async with asyncio.timeout(PATIENCE_S):
        await caller()

    assert seen == [499]
