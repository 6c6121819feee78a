"""Requests that come whole and in the usual form are read at once: as h11 reads them, and answered as it answers."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from tests.cli.wire import App, answered, connection
from tocsin.cli import connections
from tocsin.cli.plain_requests import PlainCycle, head_of

pytestmark = pytest.mark.anyio

HOST = b"host: localhost:8321\r\n"
BODY = b'{"n":1}'
PLAIN = b"POST /schedule HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\ncontent-length: 7\r\n\r\n" + BODY


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the request as it was understood."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    names = ("method", "path", "raw_path", "query_string", "headers", "http_version", "client", "scheme", "state")
    text = json.dumps([[name, repr(scope[name])] for name in names] + [repr(body)]).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


async def said(app: App, *pieces: bytes) -> tuple[bytes, bool, int]:
    """What is sent, whether the connection is closed, and how many requests were read at once."""
    async with connection(app) as (made, wire):
        for piece in pieces:
            made.data_received(piece)
            await answered(made)
        return wire.sent, wire.is_closing(), made.at_once


# ---- Requests ------------------------------------------------------------------------------------

REQUESTS = {
    "a body": PLAIN,
    "no body": b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "a query": b"GET /get?id=a%20b&x=%3F?y HTTP/1.1\r\n" + HOST + b"\r\n",
    "an empty query": b"GET /get? HTTP/1.1\r\n" + HOST + b"\r\n",
    "escapes": b"GET /i/a%3Ab/get%2Fx%C3%A4 HTTP/1.1\r\n" + HOST + b"\r\n",
    "blanks around values": PLAIN.replace(b"localhost:8321", b"\t localhost \t"),
    "an empty value": PLAIN.replace(HOST, HOST + b"x-empty:\r\nx-blank:  \r\n"),
    "a header twice": PLAIN.replace(HOST, HOST + b"X-A: 1\r\nx-a: 2\r\n"),
    "kept open": PLAIN.replace(HOST, HOST + b"Connection: Keep-Alive\r\n"),
    "a body of nothing": PLAIN.replace(b": 7", b": 0").removesuffix(BODY),
    "zeros before the length": PLAIN.replace(b": 7", b": 007"),
    "deleted": b"DELETE /pools?name=x HTTP/1.1\r\n" + HOST + b"\r\n",
    "put": PLAIN.replace(b"POST", b"PUT"),
}
UNUSUAL = {
    "in chunks": b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    "closed after": PLAIN.replace(HOST, HOST + b"connection: close\r\n"),
    "an upgrade": PLAIN.replace(HOST, HOST + b"connection: upgrade\r\nupgrade: websocket\r\n"),
    "waits for leave": PLAIN.replace(HOST, HOST + b"expect: 100-continue\r\n"),
    "head only": b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n",
    "options": b"OPTIONS / HTTP/1.1\r\n" + HOST + b"\r\n",
    "an old version": PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "no host": PLAIN.replace(HOST, b""),
    "two hosts": PLAIN.replace(HOST, HOST * 2),
    "two lengths": PLAIN.replace(b"content-length: 7", b"content-length: 7\r\ncontent-length: 6"),
    "one length twice": PLAIN.replace(b"content-length: 7", b"content-length: 7\r\ncontent-length: 7"),
    "no length twice": b"GET / HTTP/1.1\r\n" + HOST + b"content-length: 0\r\ncontent-length: 0\r\n\r\n",
    "a signed length": PLAIN.replace(b": 7", b": +7"),
    "a list of lengths": PLAIN.replace(b": 7", b": 7, 7"),
    "both framings": PLAIN.replace(HOST, HOST + b"transfer-encoding: chunked\r\n"),
    "a blank before the colon": PLAIN.replace(b"host:", b"host :"),
    "a folded line": PLAIN.replace(HOST, HOST + b"x: a\r\n b\r\n"),
    "a line that ends without CR": PLAIN.replace(b"8321\r\n", b"8321\n"),
    "CR in a value": PLAIN.replace(b"8321", b"83\r21"),
    "NUL in a value": PLAIN.replace(b"8321", b"83\x0021"),
    "not ASCII": PLAIN.replace(HOST, HOST + b"x: \xff\r\n"),
    "a control character in the path": PLAIN.replace(b"/schedule", b"/\x01"),
    "no ASCII in the path": PLAIN.replace(b"/schedule", "/ä".encode()),
    "no path": PLAIN.replace(b"/schedule", b"http://localhost/schedule"),
    "two blanks": PLAIN.replace(b" /", b"  /"),
    "no such method": PLAIN.replace(b"POST", b"BREW"),
    "one more request behind it": PLAIN + PLAIN,
    "the beginning of another": PLAIN + b"GET /",
    "a line too many": PLAIN + b"\r\n",
    "an empty line first": b"\r\n" + PLAIN,
    "many headers": PLAIN.replace(HOST, HOST + b"a: b\r\n" * 70),
    "a long header": PLAIN.replace(HOST, HOST + b"a: " + b"b" * 5_000 + b"\r\n"),
    "no headers": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00",
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_plain_request_is_read_at_once_as_h11_reads_it(name: str) -> None:
    request = REQUESTS[name]
    assert await said(echo, request) == (*(await said(echo, request[:1], request[1:]))[:2], 1)


@pytest.mark.parametrize("name", UNUSUAL)
async def test_what_is_unusual_is_left_to_h11(name: str) -> None:
    assert (await said(echo, UNUSUAL[name]))[2] == 0


async def test_requests_made_by_chance_are_read_as_h11_reads_them() -> None:
    random, at_once = Random(46), 0
    for _ in range(1_500):
        request = bytearray(random.choice([*REQUESTS.values()]))
        for _ in range(random.randint(0, 2)):
            at, byte = random.randrange(len(request)), random.choice(b"\r\n :;,/?%aZ7\x00\xff\t")
            match random.randrange(3):
                case 0:
                    request[at] = byte
                case 1:
                    request.insert(at, byte)
                case _:
                    del request[at]
        whole = await said(echo, bytes(request))
        if whole[2]:
            assert whole[:2] == (await said(echo, bytes(request[:1]), bytes(request[1:])))[:2], bytes(request)
            at_once += 1
    assert 300 < at_once < 1_400, "both ways are tried"


async def test_one_after_another_on_one_connection() -> None:
    other, third = PLAIN.replace(BODY, b'{"n":2}'), PLAIN.replace(b"/schedule", b"/get").replace(b": 7", b": 8") + b" "
    chunked = UNUSUAL["in chunks"]
    requests = (PLAIN, other, chunked, third, PLAIN, chunked, chunked, other)
    sent, closed, at_once = await said(echo, *requests)
    assert (closed, at_once) == (False, 5)
    assert sent == b"".join([(await said(echo, one))[0] for one in requests])


async def test_a_head_that_comes_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def reading(data: bytes) -> Any:
        read.append(data)
        return head_of(data)

    monkeypatch.setattr(connections, "head_of", reading)
    _, _, at_once = await said(echo, PLAIN, PLAIN, PLAIN)
    assert (len(read), at_once) == (1, 3)


async def test_headers_that_an_app_changes_are_changed_for_one_request() -> None:
    seen = []

    async def changing(scope: Any, receive: Any, send: Any) -> None:
        seen.append([*scope["headers"]])
        scope["headers"].append((b"x-mine", b"1"))
        scope["state"]["a"] = 2
        await echo(scope, receive, send)

    await said(changing, PLAIN, PLAIN)
    assert seen[0] == seen[1]


# ---- Answers -------------------------------------------------------------------------------------


def answering(status: int, headers: list[tuple[bytes, bytes]], *bodies: bytes) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for n, body in enumerate(bodies, 1):
            await send({"type": "http.response.body", "body": body, "more_body": n < len(bodies)})

    return app


async def raising(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("so it is")


async def silent(scope: Any, receive: Any, send: Any) -> None:
    await receive()


async def out_of_order(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.body", "body": b"x"})


async def twice(scope: Any, receive: Any, send: Any) -> None:
    await echo(scope, receive, send)
    await send({"type": "http.response.body", "body": b"x"})


TWO = (b"content-length", b"2")
ANSWERS: dict[str, tuple[App, bool]] = {
    "plain": (answering(200, [TWO], b"ok"), True),
    "a refusal": (answering(409, [TWO, (b"retry-after", b"1")], b"no"), True),
    "no body": (answering(204, [], b""), False),
    "not modified": (answering(304, [TWO], b""), False),
    "in pieces": (answering(200, [(b"content-length", b"4")], b"ab", b"cd"), False),
    "of no length": (answering(200, [], b"ab", b"cd"), False),
    "closing": (answering(200, [TWO, (b"connection", b"close")], b"ok"), False),
    "too long": (answering(200, [TWO], b"more"), False),
    "too short": (answering(200, [TWO], b"m"), False),
    "two lengths": (answering(200, [TWO, (b"content-length", b"3")], b"ok"), False),
    "a header that ends its line": (answering(200, [TWO, (b"x", b"a\r\nb: c")], b"ok"), False),
    "an app that raises": (raising, False),
    "an app that says nothing": (silent, False),
    "an app that begins with the body": (out_of_order, False),
    "an app that answers twice": (twice, True),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_written_as_h11_writes_it(name: str) -> None:
    app, plain = ANSWERS[name]
    async with connection(app) as (made, wire), connection(app) as (other, through_h11):
        made.data_received(PLAIN)
        other.data_received(PLAIN[:1])
        other.data_received(PLAIN[1:])
        await answered(made)
        await answered(other)
        assert (made.at_once, other.at_once) == (1, 0)
        assert wire.sent == through_h11.sent
        assert wire.is_closing() == through_h11.is_closing()
        assert isinstance(made.cycle, PlainCycle) and made.cycle.plain == plain
        assert wire.writes == 1 or not plain
        if not wire.is_closing():
            before = len(wire.sent)
            made.data_received(PLAIN)
            await answered(made)
            assert wire.sent[before:] == through_h11.sent, "the connection serves on"


# ---- Meanwhile -----------------------------------------------------------------------------------


class Gate:
    """An app that answers when it may."""

    def __init__(self, app: App = echo) -> None:
        self._app, self.open, self.asked = app, asyncio.Event(), 0
        self.left = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        await self.open.wait()
        await self._app(scope, receive, send)


@pytest.mark.parametrize("app", [echo, answering(200, [], b"ab", b"cd")], ids=["at once", "given to h11"])
@pytest.mark.parametrize("split", [1, 40, len(PLAIN)])
async def test_what_comes_while_a_request_is_answered_waits_its_turn(app: App, split: int) -> None:
    second, third = PLAIN.replace(BODY, b'{"n":2}'), b"GET /third HTTP/1.1\r\n" + HOST + b"\r\n"
    gate = Gate(app)
    async with connection(gate) as (made, wire):
        made.data_received(PLAIN)
        made.data_received(second[:split])
        made.data_received(second[split:] + third)
        await asyncio.sleep(0)
        assert (gate.asked, wire.sent, wire.reading) == (1, b"", False)
        gate.open.set()
        await answered(made)
        assert wire.sent == b"".join([(await said(app, one))[0] for one in (PLAIN, second, third)])
        assert wire.reading and not wire.is_closing()


async def test_what_comes_while_an_answer_is_in_h11_waits_behind_what_came_before() -> None:
    second, third = PLAIN.replace(BODY, b'{"n":2}'), b"GET /third HTTP/1.1\r\n" + HOST + b"\r\n"
    begun, may_end = asyncio.Event(), asyncio.Event()
    paths = []

    async def in_pieces(scope: Any, receive: Any, send: Any) -> None:
        paths.append((scope["path"], (await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        begun.set()
        await may_end.wait()
        await send({"type": "http.response.body", "body": b"b"})

    async with connection(in_pieces) as (made, _):
        made.data_received(PLAIN)
        made.data_received(second[:30])
        await begun.wait()
        made.data_received(second[30:] + third)
        may_end.set()
        await answered(made)
    assert paths == [("/schedule", BODY), ("/schedule", b'{"n":2}'), ("/third", b"")]


async def test_a_caller_that_leaves_is_noticed_while_its_request_is_answered() -> None:
    seen = []

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())
        seen.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": [TWO]})
        await send({"type": "http.response.body", "body": b"ok"})

    async with connection(waiting) as (made, wire):
        made.data_received(PLAIN)
        await asyncio.sleep(0)
        made.connection_lost(None)
        await answered(made)
        assert seen == [{"type": "http.request", "body": BODY, "more_body": False}, {"type": "http.disconnect"}]
        assert wire.sent == b""


async def test_a_server_that_stops_answers_and_closes() -> None:
    gate = Gate()
    async with connection(gate) as (made, wire):
        made.data_received(PLAIN)
        await asyncio.sleep(0)
        made.shutdown()
        gate.open.set()
        await answered(made)
        assert wire.sent.startswith(b"HTTP/1.1 200") and wire.is_closing()


async def test_a_caller_that_does_not_read_is_waited_for() -> None:
    async with connection(echo) as (made, wire):
        made.pause_writing()
        made.data_received(PLAIN)
        for _ in range(5):
            await asyncio.sleep(0)
        assert wire.sent == b""
        made.resume_writing()
        await answered(made)
        assert wire.sent.startswith(b"HTTP/1.1 200")


async def test_a_plain_request_dawdles_neither_before_nor_while_it_is_answered() -> None:
    gate = Gate()
    async with connection(gate) as (made, _):
        states = [made._dawdles]
        made.data_received(PLAIN)
        states.append(made._dawdles)
        assert isinstance(made.cycle, PlainCycle)
        gate.open.set()
        await answered(made)
        assert [*states, made._dawdles] == [connections.Dawdles.HEAD, None, connections.Dawdles.HEAD]
