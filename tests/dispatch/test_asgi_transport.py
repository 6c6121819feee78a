"""The in-process transport: what the app sees, the same bounds, and an app that outlives its answer or does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tocsin.dispatch.asgi_transport import App, AsgiTransport, Message, Receive, Send
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed, NeverConnected, TransportError

pytestmark = pytest.mark.anyio

T = TypeVar("T")

URL = "https://app.example:8443/jobs/%7Eme/_tocsin/callback"
MAX_BODY = 65_536


async def post(app: App, *, url: str = URL, body: bytes = b"{}", timeout: float = 5.0) -> Answer:
    transport = AsgiTransport(app)
    try:
        return await transport.post(
            url, {"webhook-id": "a:1"}, body, connect_timeout=5.0, timeout=timeout, max_body=MAX_BODY
        )
    finally:
        await transport.aclose()


async def soon(waiting: Awaitable[T]) -> T:
    return await asyncio.wait_for(waiting, 5)


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def piece(body: bytes, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


def sending(*messages: Message) -> App:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return app


async def test_the_app_sees_the_request() -> None:
    seen: list[Any] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        seen.extend([scope, await receive()])
        await sending(start(), piece(b""))(scope, receive, send)

    await post(app, body=b"[1]")
    scope, message = seen

    assert (scope["type"], scope["method"], scope["scheme"]) == ("http", "POST", "https")
    assert (scope["path"], scope["raw_path"]) == ("/jobs/~me/_tocsin/callback", b"/jobs/%7Eme/_tocsin/callback")
    assert scope["server"] == ("app.example", 8443)
    assert (b"host", b"app.example:8443") in scope["headers"]
    assert (b"content-length", b"3") in scope["headers"]
    assert (b"webhook-id", b"a:1") in scope["headers"]
    assert message == {"type": "http.request", "body": b"[1]", "more_body": False}


async def test_the_app_does_not_see_the_context_of_who_scheduled() -> None:
    """That is a request of the same app, often, and as good as ended."""
    user: ContextVar[str] = ContextVar("user", default="nobody")
    user.set("ada")
    seen: list[str] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        seen.append(user.get())
        await send(start())
        await send(piece(b""))

    assert (await post(app)).status == 200
    assert seen == ["nobody"]


async def test_the_answer_comes_back_whole() -> None:
    app = sending(start(418, (b"X-One", b"1"), (b"x-one", b"2")), piece(b"ab", True), piece(b"cd", True), piece(b""))

    assert await post(app) == Answer(418, {"x-one": "1, 2"}, b"abcd")


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body(), headers={"x-id": request.headers["webhook-id"]})


async def moved(request: Request) -> Response:
    return RedirectResponse("/elsewhere")


async def streamed(request: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            await asyncio.sleep(0)
            yield b"piece "

    return StreamingResponse(pieces())


async def failing(request: Request) -> Response:
    raise ZeroDivisionError


framework = Starlette(
    routes=[
        Route("/echo", echo, methods=["POST"]),
        Route("/moved", moved, methods=["POST"]),
        Route("/streamed", streamed, methods=["POST"]),
        Route("/failing", failing, methods=["POST"]),
    ]
)


async def test_an_app_of_a_framework() -> None:
    answer = await post(framework, url="http://x/echo", body=b"hello")

    assert (answer.status, answer.body, answer.headers["x-id"]) == (200, b"hello", "a:1")
    assert (await post(framework, url="http://x/streamed")).body == b"piece piece piece "
    assert (await post(framework, url="http://x/moved")).status == 307
    assert (await post(framework, url="http://x/failing")).status == 500
    assert (await post(framework, url="http://x/nowhere")).status == 404


async def test_a_listening_app_is_not_told_of_a_disconnect_before_its_answer() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        listening = asyncio.ensure_future(receive())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not listening.done()
        await sending(start(), piece(b"ok"))(scope, receive, send)
        told.set_result(await listening)

    told: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    transport = AsgiTransport(app)
    answer = await transport.post("http://x/", {}, b"", connect_timeout=1, timeout=5, max_body=10)

    assert answer.body == b"ok"
    assert await soon(told) == {"type": "http.disconnect"}


# ---- Bounds --------------------------------------------------------------------------------------


async def test_the_limit_of_an_answer() -> None:
    whole = await post(sending(start(), piece(b"x" * MAX_BODY)))
    longer = await post(sending(start(), piece(b"x" * MAX_BODY, True), piece(b"x")))

    assert (whole.body, whole.cut) == (b"x" * MAX_BODY, False)
    assert (longer.body, longer.cut) == (b"x" * MAX_BODY, True)


async def test_an_app_that_goes_on_after_the_limit_hears_that_nobody_listens() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send(start())
        while True:
            try:
                await send(piece(b"x" * 10_000, True))
            except OSError:
                refused.set()
            await asyncio.sleep(0)

    refused = asyncio.Event()
    transport = AsgiTransport(app)
    answer = await transport.post("http://x/", {}, b"", connect_timeout=1, timeout=5, max_body=MAX_BODY)
    await soon(refused.wait())
    await transport.aclose()

    assert (len(answer.body), answer.cut) == (MAX_BODY, True)


async def test_a_streamed_answer_that_is_cut_off_ends_its_app_without_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def endless(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 10_000

        return StreamingResponse(pieces())

    async def watched(scope: Message, receive: Receive, send: Send) -> None:
        try:
            await Starlette(routes=[Route("/", endless, methods=["POST"])])(scope, receive, send)
        finally:
            ended.set()

    ended = asyncio.Event()
    transport = AsgiTransport(watched)
    answer = await transport.post("http://x/", {}, b"", connect_timeout=1, timeout=5, max_body=MAX_BODY)
    await soon(ended.wait())
    await transport.aclose()

    assert (answer.status, answer.cut, caplog.records) == (200, True, [])


async def test_one_deadline_covers_everything() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send(start())
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ended = asyncio.Event()
    with pytest.raises(DeadlinePassed, match=r"none after 0\.05 s"):
        await post(app, timeout=0.05)

    assert ended.is_set()


async def test_a_cancelled_call_cancels_the_app() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    started, ended = asyncio.Event(), asyncio.Event()
    call = asyncio.ensure_future(post(app))
    await soon(started.wait())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert ended.is_set()


# ---- Apps that misbehave -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (sending(), "without a whole answer"),
        (sending(start()), "without a whole answer"),
        (sending(start(), piece(b"x", True)), "without a whole answer"),
        (sending(piece(b"x")), "'http.response.body' out of turn"),
        (sending(start(), start()), "'http.response.start' out of turn"),
        (sending({"type": "websocket.accept"}), "'websocket.accept' out of turn"),
    ],
)
async def test_half_an_answer_is_a_broken_exchange(app: App, said: str) -> None:
    with pytest.raises(BrokenExchange, match=said):
        await post(app)


@pytest.mark.parametrize("before", [(), (start(),), (start(), piece(b"x", True))])
async def test_an_app_that_raises_is_a_broken_exchange_and_logged(
    before: tuple[Message, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await sending(*before)(scope, receive, send)
        raise ZeroDivisionError("of the app")

    with pytest.raises(BrokenExchange, match="the app raised ZeroDivisionError"):
        await post(app)

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "of the app" in caplog.text


async def test_an_app_that_is_cancelled_by_itself_does_not_hang_the_call() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        raise asyncio.CancelledError

    with pytest.raises(BrokenExchange, match="cancelled"):
        await post(app)


# ---- After the answer ----------------------------------------------------------------------------


async def test_work_behind_the_answer_goes_on() -> None:
    async def behind() -> None:
        await go.wait()
        done.set()

    async def answered(request: Request) -> Response:
        return PlainTextResponse("ok", background=BackgroundTask(behind))

    go, done = asyncio.Event(), asyncio.Event()
    transport = AsgiTransport(Starlette(routes=[Route("/", answered, methods=["POST"])]))
    answer = await transport.post("http://x/", {}, b"", connect_timeout=1, timeout=5, max_body=10)
    assert answer.body == b"ok" and not done.is_set()
    go.set()
    await soon(done.wait())
    await transport.aclose()


async def test_closing_ends_what_still_runs() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    transport = AsgiTransport(app)
    call = asyncio.ensure_future(transport.post("http://x/", {}, b"", connect_timeout=9, timeout=9, max_body=9))
    await soon(started.wait())
    await transport.aclose()
    with pytest.raises(TransportError):
        await call
    with pytest.raises(NeverConnected, match="closed"):
        await transport.post("http://x/", {}, b"", connect_timeout=9, timeout=9, max_body=9)
