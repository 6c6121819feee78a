"""Callers that hang up, in apps whose middleware wants an answer of whatever it wraps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from tests.dispatch.receiver.calls import Kit
from tests.http.face import Face

pytestmark = pytest.mark.anyio

HALF = b'{"id": "a", "lea'


class Leaving:
    """A request whose caller hangs up after `body`, of which more was announced if it is `cut`. Kept: what was sent."""

    def __init__(self, method: str, path: str, body: bytes = b"", *, query: bytes = b"", cut: bool = False) -> None:
        self.waits = asyncio.Event()
        self.leave = asyncio.Event()
        self.sent: list[Any] = []
        self._messages = [{"type": "http.request", "body": body, "more_body": cut}]
        self.scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "root_path": "", "query_string": query, "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80), "state": {},
        }  # fmt: skip

    async def receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        self.waits.set()
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def through(self, app: Any) -> int:
        """The status of its answer; whatever the app raises is raised here."""
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            tasks.create_task(app(self.scope, self.receive, self.send))
            await self.waits.wait()
            self.leave.set()
        status: int = self.sent[0]["status"]
        return status


def wrapped(path: str, app: Any) -> FastAPI:
    """An app with a middleware, as tutorials write it, around whatever is mounted."""
    outer = FastAPI()

    @outer.middleware("http")
    async def timed(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers["x-timed"] = "yes"
        return response

    outer.mount(path, app)
    return outer


@pytest.fixture
async def app(face: Face) -> AsyncIterator[FastAPI]:
    yield wrapped("/jobs", face.host.asgi(insecure=True))


@pytest.mark.parametrize(
    "leaving",
    [
        pytest.param(lambda: Leaving("POST", "/jobs/complete", HALF, cut=True), id="in its body"),
        pytest.param(lambda: Leaving("POST", "/jobs/schedule", b"", cut=True), id="before its body"),
        pytest.param(
            lambda: Leaving("POST", "/jobs/queues/q/claim", b'{"waitMs": 60000}'), id="while a claim waits for a job"
        ),
        pytest.param(
            lambda: Leaving("GET", "/jobs/result", query=b"id=a&waitMs=60000"), id="while it waits for a result"
        ),
    ],
)
async def test_a_caller_that_hangs_up_leaves_no_traceback(
    face: Face, app: FastAPI, leaving: Callable[[], Leaving], caplog: pytest.LogCaptureFixture
) -> None:
    await face.schedule(queue="other", id="a", keepResultMs=60_000)

    status = await leaving().through(app)

    assert status == 499
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_a_scheduler_that_hangs_up_on_a_receiver_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    app = wrapped("/_tocsin", Kit().receiver)

    assert await Leaving("POST", "/_tocsin/callback", HALF, cut=True).through(app) == 499
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_a_server_that_raises_for_a_caller_that_left_sees_no_error_of_ours(face: Face) -> None:
    """Servers may raise OSError from `send` once the connection is closed; the body is where most find out."""
    app = face.host.asgi(insecure=True)
    for after in (0, 1):
        call = Leaving("GET", "/status")
        told: list[Any] = []

        async def send(message: Any, told: list[Any] = told, after: int = after) -> None:
            if len(told) >= after:
                raise OSError("the connection is closed")
            told.append(message)

        await app(call.scope, call.receive, send)
        assert len(told) == after
