"""The receiver as an ASGI app: methods, bodies that are too long or never end, callers that leave, lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tests.dispatch.receiver.signed_callbacks import ReceiverFixture, error
from tocsin.dispatch.asgi_transport import Message
from tocsin.dispatch.receiver import asgi
from tocsin.dispatch.transport import Answer

pytestmark = pytest.mark.anyio


class Caller:
    """One ASGI request, piece by piece; `answer` once it is there."""

    def __init__(self, pieces: Iterable[Message], *, length: bytes | None = None, **scope: Any) -> None:
        headers = [] if length is None else [(b"content-length", length)]
        self.scope: Message = {"type": "http", "method": "POST", "path": "/", "headers": headers, **scope}
        self._pieces = iter(pieces)
        self.taken = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        self.taken += 1
        return next(self._pieces)

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def answer(self) -> Answer:
        start, body = self.sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, body["body"])


def pieces(count: int, size: int) -> Iterable[Message]:
    for n in range(count):
        yield {"type": "http.request", "body": b"x" * size, "more_body": n < count - 1}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"])
async def test_only_post_is_allowed(method: str) -> None:
    caller = Caller([], method=method)

    await ReceiverFixture().receiver(caller.scope, caller.receive, caller.send)

    assert (caller.answer.status, caller.answer.headers["allow"]) == (405, "POST")
    assert bool(caller.answer.body) is (method != "HEAD")


@pytest.mark.parametrize("length", [b"1048577", b"9" * 400])
async def test_a_body_said_to_be_too_long_is_not_read(length: bytes) -> None:
    caller = Caller(pieces(100, 65_536), length=length)

    await ReceiverFixture().receiver(caller.scope, caller.receive, caller.send)

    assert (caller.answer.status, caller.taken) == (413, 0)
    assert caller.answer.headers["connection"] == "close"


@pytest.mark.parametrize("length", [None, b"5"])
async def test_a_body_is_refused_as_soon_as_it_is_too_long(length: bytes | None) -> None:
    caller = Caller(pieces(100, 65_536), length=length, http_version="2")

    await ReceiverFixture().receiver(caller.scope, caller.receive, caller.send)

    assert (caller.answer.status, caller.taken) == (413, 17)
    assert "connection" not in caller.answer.headers


async def test_what_is_said_to_a_caller_that_left_in_the_middle_is_for_middleware_only() -> None:
    caller = Caller([{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}])

    await ReceiverFixture().receiver(caller.scope, caller.receive, caller.send)

    assert (caller.answer.status, caller.answer.body) == (499, b"")


async def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "BODY_S", 0.01)
    caller = Caller([])

    async def silence() -> Message:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    await ReceiverFixture().receiver(caller.scope, silence, caller.send)

    assert (caller.answer.status, error(caller.answer)["code"]) == (408, "REQUEST_TIMEOUT")


async def test_a_caller_that_left_before_the_answer_is_nobody_s_error() -> None:
    caller = Caller(pieces(1, 3))

    async def gone(message: Message) -> None:
        raise OSError("gone")

    await ReceiverFixture().receiver(caller.scope, caller.receive, gone)


async def test_mounted_in_an_app_it_takes_any_path_of_its_mount() -> None:
    fixture, runs = ReceiverFixture(), list[Any]()
    fixture.receiver.register({"invoices:send": runs.append})
    app = FastAPI()
    app.mount("/_tocsin", fixture.receiver)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
        headers, body = fixture.scheduler.request({"n": 1})
        answers = [await http.post(f"/_tocsin/{path}", headers=headers, content=body) for path in ("callback", "")]
        forged = await http.post("/_tocsin/callback", content=b"{}")

    assert [answer.status_code for answer in answers] == [200, 200]
    assert (forged.status_code, forged.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert runs == [{"n": 1}]


async def test_served_by_itself_it_ends_with_its_server() -> None:
    fixture, sent = ReceiverFixture(), list[str]()
    told = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Message:
        return {"type": next(told)}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    await fixture.receiver({"type": "lifespan"}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (await fixture.send()).status == 503


async def test_a_websocket_is_closed() -> None:
    caller = Caller([], type="websocket")

    await ReceiverFixture().receiver(caller.scope, caller.receive, caller.send)

    assert caller.sent == [{"type": "websocket.close", "code": 1000}]
