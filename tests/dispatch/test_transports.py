"""Transports against real servers on loopback: what arrives, what comes back, what is never followed or used."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.dispatch.scripted_server import (
    OK,
    ClientConnection,
    always_ok,
    answering,
    closing_after,
    dripping,
    scripted_server,
    silent,
    trusting_tls,
)
from tocsin.dispatch.aiohttp_transport import AiohttpTransport, _Connector
from tocsin.dispatch.builtin_transport import BuiltinTransport
from tocsin.dispatch.callback import Verdict
from tocsin.dispatch.httpx_transport import HttpxTransport
from tocsin.dispatch.outcome import classify, from_error
from tocsin.dispatch.transport import Answer, BrokenExchange, NeverConnected, Transport, TransportError
from tocsin.dispatch.transports import default_transport
from tocsin.errors import SettingsError

pytestmark = pytest.mark.anyio

HEADERS = {
    "content-type": "application/json",
    "user-agent": "tocsin/0.1",
    "webhook-id": "a:1",
    "tocsin-lease": "1.2.3",
}
BODY = b'{ "b":1.0,  "a":"\\u00e9" }'
MAX_BODY = 65_536
LONG_S = 20.0


async def post(
    transport: Transport, url: str, *, body: bytes = BODY, connect_timeout: float = LONG_S, timeout: float = LONG_S
) -> Answer:
    return await transport.post(url, HEADERS, body, connect_timeout=connect_timeout, timeout=timeout, max_body=MAX_BODY)


# ---- There and back ------------------------------------------------------------------------------


async def test_the_request_arrives_as_it_is(transport: Transport) -> None:
    async with scripted_server(always_ok) as server:
        await post(transport, server.url)
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        line, *fields = head.decode().split("\r\n")
        headers = dict(field.lower().split(": ", 1) for field in fields)

    assert line == "POST /_tocsin/callback HTTP/1.1"
    assert body == BODY
    assert len(headers) == len(fields), "a header was sent twice"
    assert HEADERS.items() <= headers.items()
    assert headers["host"] == f"127.0.0.1:{server.port}"
    assert headers["content-length"] == str(len(BODY))
    assert headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "transfer-encoding", "expect"} & headers.keys()


async def test_the_answer_comes_back_whole(transport: Transport) -> None:
    text = b"HTTP/1.1 418 I'm a teapot\r\nX-One: 1\r\nx-one: 2\r\nTocsin-Retry: never\r\nContent-Length: 4\r\n\r\nbody"
    async with scripted_server(answering(text)) as server:
        answer = await post(transport, server.url)

    assert (answer.status, answer.body) == (418, b"body")
    assert answer.headers["x-one"] == "1, 2"
    assert answer.headers["tocsin-retry"] == "never"


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: 1\r\n\r\n",
            b"abcde",
        ),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.0 200 OK\r\n\r\nof old", b"of old"),
        (b"HTTP/1.1 200\r\ncontent-length: 1\r\n\r\nx", b"x"),
    ],
)
async def test_every_way_to_end_an_answer(transport: Transport, text: bytes, body: bytes) -> None:
    async with scripted_server(closing_after(text)) as server:
        answer = await post(transport, server.url)

    assert (answer.status // 100, answer.body) == (2, body)


async def test_interim_answers_are_passed_over(transport: Transport) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    async with scripted_server(answering(interim, OK)) as server:
        answers = [await post(transport, server.url) for _ in range(2)]

    assert [answer.status for answer in answers] == [200, 200]
    assert server.accepted == 1


async def test_an_upgrade_nobody_asked_for_is_a_failure(transport: Transport) -> None:
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"
    async with scripted_server(closing_after(upgrade, b"junk")) as server:
        try:
            outcome = classify(await post(transport, server.url), 0)
        except BrokenExchange as error:
            outcome = from_error(error)
        await server.empty()

    assert outcome.verdict is Verdict.FAILED


async def test_a_connection_is_used_again(transport: Transport) -> None:
    async with scripted_server(always_ok) as server:
        for _ in range(5):
            assert (await post(transport, server.url)).body == b"ok"

    assert (server.accepted, len(server.requests)) == (1, 5)


async def test_no_call_waits_for_another(transport: Transport) -> None:
    at_once = 200

    async def together(connection: ClientConnection) -> None:
        await connection.request()
        await connection.server.until(lambda: len(connection.server.requests) == at_once)
        await connection.send(OK)
        await connection.gone()

    async with scripted_server(together) as server:
        answers = await asyncio.gather(*(post(transport, server.url) for _ in range(at_once)))

    assert {answer.status for answer in answers} == {200}


async def test_a_large_body_is_sent_whole(transport: Transport) -> None:
    body = bytes(range(256)) * 1_024
    async with scripted_server(always_ok) as server:
        await post(transport, server.url, body=body)

    assert server.requests[0].endswith(body)


def trusting(name: str) -> Transport:
    return default_transport(name, ssl_context=trusting_tls())


async def test_https(name: str) -> None:
    transport = trusting(name)
    async with scripted_server(always_ok, tls=True) as server:
        for _ in range(2):
            answer = await post(transport, server.url.replace("http:", "https:"))
            assert answer.body == b"ok"
        await transport.aclose()
        await server.empty()

    assert server.accepted == 1


# ---- Bounds of an answer -------------------------------------------------------------------------


def chunked(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def measured(body: bytes, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), headers, body)


@pytest.mark.parametrize("form", [chunked, measured])
async def test_an_answer_is_read_up_to_its_limit_and_then_the_connection_is_closed(
    transport: Transport, form: object
) -> None:
    assert callable(form)
    async with scripted_server(answering(form(b"x" * MAX_BODY))) as server:
        for _ in range(2):
            answer = await post(transport, server.url)
            assert (len(answer.body), answer.cut) == (MAX_BODY, False)
    assert server.accepted == 1
    async with scripted_server(answering(form(b"x" * (MAX_BODY + 1)))) as server:
        for _ in range(2):
            answer = await post(transport, server.url)
            assert (len(answer.body), answer.cut) == (MAX_BODY, True)
        await server.empty()
    assert server.accepted == 2


async def test_an_endless_answer_is_cut_off(transport: Transport) -> None:
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with scripted_server(dripping(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", chunk, 0)) as server:
        answer = await post(transport, server.url)
        await server.empty()

    assert (answer.status, answer.body, answer.cut) == (200, b"x" * MAX_BODY, True)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
async def test_compressed_zeros_do_not_swell(transport: Transport, coding: bytes) -> None:
    """A gzip file may hold several members: a gigabyte of zeros in a megabyte, 48 MiB in less than the limit."""
    member = gzip.compress(bytes(16 * 1024 * 1024))
    headers = b"content-encoding: " + coding + b"\r\n"
    gigabyte, fitting = measured(member * 64, headers), measured(member * 3, headers)
    assert len(gigabyte) > MAX_BODY > len(fitting)
    async with scripted_server(answering(fitting)) as small, scripted_server(closing_after(gigabyte)) as large:
        tracemalloc.start()
        try:
            assert (await post(transport, small.url)).body == member * 3
            assert (await post(transport, large.url)).body == (member * 64)[:MAX_BODY]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 8 * 1024 * 1024


# ---- What is never followed or used --------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(transport: Transport, status: int) -> None:
    async with scripted_server(always_ok) as inside:
        location = f"HTTP/1.1 {status} Moved\r\nlocation: {inside.url}\r\ncontent-length: 0\r\n\r\n"
        async with scripted_server(answering(location.encode())) as server:
            answer = await post(transport, server.url)

    assert (answer.status, answer.headers["location"]) == (status, inside.url)
    assert (inside.accepted, len(server.requests)) == (0, 1)


async def test_cookies_are_not_kept(transport: Transport) -> None:
    cookie = b"HTTP/1.1 200 OK\r\nset-cookie: a=b; Path=/\r\ncontent-length: 0\r\n\r\n"
    async with scripted_server(answering(cookie)) as server:
        for _ in range(2):  # by name: no client keeps cookies of bare addresses
            await post(transport, server.url.replace("127.0.0.1", "localhost"))

    assert len(server.requests) == 2 and b"a=b" not in server.requests[1]


async def test_the_environment_sends_nothing_elsewhere(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password hunter2\ndefault login user password hunter2\n")
    netrc.chmod(0o600)
    async with scripted_server(always_ok) as trap, scripted_server(always_ok) as server:
        for variable in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{trap.port}")
            monkeypatch.setenv(variable.upper(), f"http://127.0.0.1:{trap.port}")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("NETRC", str(netrc))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
        transport = default_transport(name)
        assert (await post(transport, server.url)).status == 200
        await transport.aclose()

    assert trap.accepted == 0
    assert b"authorization" not in server.requests[0].lower()


# ---- The end of a transport, and which one it is -------------------------------------------------


async def test_closing_closes_idle_connections_and_refuses_calls(transport: Transport) -> None:
    async with scripted_server(always_ok) as server:
        await asyncio.gather(*(post(transport, server.url) for _ in range(8)))
        await transport.aclose()
        await transport.aclose()
        await server.empty()
        with pytest.raises(NeverConnected, match="the transport is closed"):
            await post(transport, server.url)


async def test_a_transport_that_was_never_used_closes(transport: Transport) -> None:
    await transport.aclose()


async def test_a_call_in_flight_ends_and_closes_its_connection_though_its_transport_is_closed(
    transport: Transport,
) -> None:
    async with scripted_server(silent) as server:
        call = asyncio.create_task(post(transport, server.url, timeout=0.3))
        await server.until(lambda: server.open == 1)
        await transport.aclose()
        with pytest.raises(TransportError):
            await call
        await server.empty()


def test_our_own_is_chosen_unless_another_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(default_transport(), BuiltinTransport)
    assert isinstance(default_transport("builtin"), BuiltinTransport)
    assert isinstance(default_transport("aiohttp"), AiohttpTransport)
    assert isinstance(default_transport("httpx"), HttpxTransport)
    monkeypatch.setattr("tocsin.dispatch.transports.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match="needs aiohttp"):
        default_transport("aiohttp")


async def test_an_aiohttp_without_our_hook_makes_callbacks_wait_and_fails_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads answers hangs on a name of aiohttp that is not public."""

    def forgetful(connector: aiohttp.TCPConnector, **options: Any) -> None:
        aiohttp.TCPConnector.__init__(connector, **options)

    monkeypatch.setattr(_Connector, "__init__", forgetful)
    transport = AiohttpTransport()
    async with scripted_server(always_ok) as server:
        with pytest.raises(NeverConnected, match="transport='httpx'"):
            await post(transport, server.url)
        await transport.aclose()
        await server.empty()

    assert server.requests == []


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="one of builtin, aiohttp, httpx, not 'curl'"):
        default_transport("curl")
