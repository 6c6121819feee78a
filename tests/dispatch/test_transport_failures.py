"""Transports and everything that can go wrong: never connected, broken, or too late, and nothing in between."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.dispatch import name_lookups
from tests.dispatch.scripted_server import (
    OK,
    ClientConnection,
    Script,
    always_ok,
    answering,
    closing_after,
    dripping,
    refused_port,
    resetting_after,
    scripted_server,
    silent,
    unresponsive_port,
)
from tests.dispatch.test_transports import LONG_S, post, trusting
from tocsin.dispatch.exchange import Bounds
from tocsin.dispatch.transport import BrokenExchange, DeadlinePassed, NeverConnected, Transport
from tocsin.dispatch.transports import default_transport

pytestmark = pytest.mark.anyio

SHORT_S = 0.25
SLACK_S = 1.0
"""How late a deadline may be noticed on a busy machine."""


def url(port: int, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{port}/_tocsin/callback"


class Taken:
    """Measures a block on the loop's clock."""

    async def __aenter__(self) -> Taken:
        self._start = asyncio.get_running_loop().time()
        return self

    async def __aexit__(self, *ignored: object) -> None:
        self.seconds = asyncio.get_running_loop().time() - self._start


# ---- Never connected -----------------------------------------------------------------------------


async def test_a_refused_connection(transport: Transport) -> None:
    with refused_port() as port, pytest.raises(NeverConnected) as caught:
        await post(transport, url(port))

    assert str(caught.value) == f"refused: nothing accepts connections at 127.0.0.1:{port}"


@pytest.mark.parametrize("bounds", [{"connect_timeout": SHORT_S}, {"timeout": SHORT_S}])
async def test_a_connection_that_is_never_made(transport: Transport, bounds: dict[str, Any]) -> None:
    with unresponsive_port() as port:
        async with Taken() as taken:
            with pytest.raises(NeverConnected, match=r"no connection after 0\.25 s"):
                await post(transport, url(port), **bounds)

    assert SHORT_S <= taken.seconds < SHORT_S + SLACK_S


@pytest.mark.parametrize("bounds", [{"connect_timeout": SHORT_S}, {"timeout": SHORT_S}])
async def test_a_tls_handshake_that_never_ends(transport: Transport, bounds: dict[str, Any]) -> None:
    async with scripted_server(silent) as server:
        async with Taken() as taken:
            with pytest.raises(NeverConnected, match=r"no connection after 0\.25 s"):
                await post(transport, url(server.port, "https"), **bounds)
        await server.empty()

    assert SHORT_S <= taken.seconds < SHORT_S + SLACK_S


async def test_a_certificate_nobody_vouches_for(transport: Transport) -> None:
    async with scripted_server(always_ok, tls=True) as server:
        with pytest.raises(NeverConnected) as caught:
            await post(transport, url(server.port, "https"))
        await server.empty()

    assert server.requests == []
    assert str(caught.value) == (
        f"the TLS certificate of 127.0.0.1:{server.port} is not trusted: self-signed certificate; "
        "name the authority that issued it in TOCSIN_CA_FILE (ca_file=)"
    )


async def test_a_certificate_for_another_name(name: str, names: dict[str, Any]) -> None:
    names["receiver.example"] = threading.Event()
    names["receiver.example"].set()
    transport = trusting(name)
    async with scripted_server(always_ok, tls=True) as server:
        with pytest.raises(NeverConnected, match=r"certificate of receiver\.example:\d+ is for another name"):
            await post(transport, f"https://receiver.example:{server.port}/")
        await transport.aclose()

    assert server.requests == []


async def test_https_to_a_server_that_speaks_http(transport: Transport) -> None:
    async def plain(connection: ClientConnection) -> None:
        await connection.reader.read(1)
        await connection.send(OK)
        await connection.gone()

    async with scripted_server(plain) as server:
        with pytest.raises(NeverConnected, match=r"the URL says https, and what answers at .* does not speak TLS"):
            await post(transport, url(server.port, "https"))
        await server.empty()


async def test_a_receiver_that_dies_is_told_from_one_that_speaks_tls(transport: Transport) -> None:
    async with scripted_server(closing_after()) as server:
        with pytest.raises(BrokenExchange, match=r"^the connection was closed without an answer, as by a receiver"):
            await post(transport, server.url)


async def test_http_to_a_server_that_speaks_tls(transport: Transport) -> None:
    """Python's servers hang up, so nobody can be sure."""
    async with scripted_server(always_ok, tls=True) as server:
        with pytest.raises(BrokenExchange, match="if the origin speaks TLS, its URL must begin with https://"):
            await post(transport, server.url.replace("https://", "http://"))


async def test_http_to_a_server_that_answers_with_a_tls_alert(transport: Transport) -> None:
    async with scripted_server(closing_after(b"\x15\x03\x01\x00\x02\x02\x28")) as server:
        with pytest.raises(BrokenExchange, match="the origin speaks TLS, the URL says http"):
            await post(transport, server.url)


async def test_a_url_with_a_password_is_not_shown(transport: Transport) -> None:
    with refused_port() as port, pytest.raises(NeverConnected) as caught:
        await post(transport, f"http://user:hunter2@127.0.0.1:{port}/")

    assert "hunter2" not in str(caught.value) and f"127.0.0.1:{port}" in str(caught.value)


@pytest.mark.parametrize("start", [b"", b"\x15\x03\x01\x00\x02\x02\x28"])
async def test_a_tls_handshake_that_breaks(transport: Transport, start: bytes) -> None:
    async def breaking(connection: ClientConnection) -> None:
        await connection.reader.read(1)
        await connection.send(start)

    async with scripted_server(breaking) as server:
        with pytest.raises(NeverConnected):
            await post(transport, url(server.port, "https"))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the resolver raises for a name, or an event it waits for."""
    real, odd = socket.getaddrinfo, dict[str, Any]()

    def look_up(host: Any, *args: Any, **options: Any) -> Any:
        fault = odd.get(host.decode() if isinstance(host, bytes) else host)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            fault.wait()
        return real("127.0.0.1" if fault else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield odd
    for fault in odd.values():
        if isinstance(fault, threading.Event):
            fault.set()
    name_lookups.wait_for_lookups()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "the name receiver.example is not found: Name or service not known",
        ),
        (
            socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
            "the name receiver.example cannot be looked up now: Temporary failure in name resolution",
        ),
        (UnicodeError("label too long"), "the host of the URL is no name: receiver.example"),
    ],
)
async def test_a_name_that_is_not_found(
    transport: Transport, names: dict[str, Any], fault: Exception, said: str
) -> None:
    names["receiver.example"] = fault
    with pytest.raises(NeverConnected, match=said):
        await post(transport, "http://receiver.example/")


async def test_a_resolver_that_does_not_answer(transport: Transport, names: dict[str, Any]) -> None:
    names["receiver.example"] = threading.Event()
    async with Taken() as taken:
        with pytest.raises(NeverConnected, match=r"no connection after 0\.25 s"):
            await post(transport, "http://receiver.example/", connect_timeout=SHORT_S)

    assert taken.seconds < SHORT_S + SLACK_S


async def test_a_transport_that_closes_during_a_lookup_cancels_nobody(
    transport: Transport, names: dict[str, Any]
) -> None:
    """A call that ended as if cancelled would take its lane down with it."""
    names["receiver.example"] = threading.Event()
    calls = [asyncio.create_task(post(transport, "http://receiver.example/", timeout=SHORT_S)) for _ in range(3)]
    await asyncio.sleep(0.05)
    calls[2].cancel()
    await transport.aclose()
    ends = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(end) for end in ends] == [NeverConnected, NeverConnected, asyncio.CancelledError]


@pytest.mark.parametrize("address", ["http://" + "a" * 70 + ".example/", "http://[::1/", "nonsense", "gopher://x/"])
async def test_an_address_that_is_none(transport: Transport, address: str) -> None:
    with pytest.raises(NeverConnected):
        await post(transport, address)


# ---- Broken --------------------------------------------------------------------------------------


async def leaving(connection: ClientConnection) -> None:
    """Accepts, and goes."""


LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
BROKEN: dict[str, Script] = {
    "closed at once": leaving,
    "closed after the request": closing_after(),
    "reset after the request": resetting_after(),
    "closed in the status line": closing_after(b"HTTP/1.1 2"),
    "closed in the headers": closing_after(b"HTTP/1.1 200 OK\r\ncontent-le"),
    "closed before the body": closing_after(LENGTH),
    "closed in the body": closing_after(LENGTH, b"12345"),
    "reset in the body": resetting_after(LENGTH, b"12345"),
    "closed between chunks": closing_after(CHUNKS, b"5\r\n12345\r\n"),
    "closed in a chunk": closing_after(CHUNKS, b"50\r\n12345"),
    "no chunk size": closing_after(CHUNKS, b"zz\r\n12345\r\n0\r\n\r\n"),
    "a negative length": closing_after(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nx"),
    "two lengths": closing_after(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxy"),
    "a malformed status line": closing_after(b"HTTP/1.1 OK 200\r\n\r\n"),
    "no status at all": closing_after(b"hello\r\n\r\n"),
    "another protocol": closing_after(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "noise": closing_after(bytes(range(256)) * 8),
    "a header without a colon": closing_after(b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n"),
    "a header with a control character": closing_after(b"HTTP/1.1 200 OK\r\nx-a: \x00\r\ncontent-length: 0\r\n\r\n"),
    "a header of a megabyte": closing_after(b"HTTP/1.1 200 OK\r\nx-a: " + b"x" * 2**20 + b"\r\n\r\n"),
    "endless headers": dripping(b"HTTP/1.1 200 OK\r\n", b"x-a: " + b"y" * 4_000 + b"\r\n", 0),
    "only interim answers": closing_after(b"HTTP/1.1 100 Continue\r\n\r\n" * 3),
}


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_exchange_is_one_and_its_connection_is_gone(transport: Transport, script: Script) -> None:
    async with scripted_server(script) as server:
        with pytest.raises(BrokenExchange) as caught:
            await post(transport, server.url)
        await server.empty()

    assert len(str(caught.value)) > 5
    assert len(server.requests) <= 1, "it was sent again in silence"


async def test_a_broken_exchange_does_not_spoil_the_next_one(transport: Transport) -> None:
    async with scripted_server(closing_after(LENGTH, b"12345")) as broken, scripted_server(always_ok) as server:
        for _ in range(3):
            with pytest.raises(BrokenExchange):
                await post(transport, broken.url)
            assert (await post(transport, server.url)).body == b"ok"


async def test_a_connection_closed_while_idle_is_not_used_again(transport: Transport) -> None:
    async with scripted_server(closing_after(OK)) as server:
        for _ in range(20):
            assert (await post(transport, server.url)).body == b"ok"
            await server.empty()

    assert server.accepted == 20


async def test_a_connection_that_dies_under_its_second_request_is_a_charged_failure(transport: Transport) -> None:
    """The receiver may have acted on it, so it is not sent again in silence."""

    async def twice(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()

    async with scripted_server(twice) as server:
        await post(transport, server.url)
        with pytest.raises(BrokenExchange):
            await post(transport, server.url)

    assert (server.accepted, len(server.requests)) == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [OK + OK.replace(b"ok", b"no"), b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nno", OK + b"\x00"],
)
async def test_bytes_after_an_answer_are_not_taken_for_the_next(transport: Transport, answer: bytes) -> None:
    """They must not settle another job. The answer before them may count as broken or as whole."""
    async with scripted_server(answering(answer)) as server:
        for _ in range(2):
            with suppress(BrokenExchange):
                assert (await post(transport, server.url)).body in (b"ok", b"")

    assert server.accepted == 2


async def test_idle_connections_are_closed_before_the_server_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"tocsin.dispatch.{name}_transport.KEEP_ALIVE_S", 0.05)
    transport = default_transport(name)
    async with scripted_server(always_ok) as server:
        await asyncio.gather(*(post(transport, server.url) for _ in range(5)))
        await server.empty()
        assert (await post(transport, server.url)).body == b"ok"
    await transport.aclose()


# ---- Too late ------------------------------------------------------------------------------------

LATE: dict[str, Script] = {
    "nothing": silent,
    "a byte of the status line now and then": dripping(b"HTTP/1.1 200 O", b"K"),
    "a header now and then": dripping(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", 0.05),
    "a byte of the body now and then": dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n", b"x"),
    "a chunk now and then": dripping(CHUNKS, b"1\r\nx\r\n"),
    "an interim answer now and then": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize("script", LATE.values(), ids=LATE.keys())
async def test_one_deadline_covers_everything(transport: Transport, script: Script) -> None:
    async with scripted_server(script) as server:
        async with Taken() as taken:
            with pytest.raises(DeadlinePassed, match=r"none after 0\.25 s"):
                await post(transport, server.url, timeout=SHORT_S)
        await server.empty()

    assert SHORT_S <= taken.seconds < SHORT_S + SLACK_S


async def test_a_request_that_cannot_be_written_in_time(transport: Transport) -> None:
    async def deaf(connection: ClientConnection) -> None:
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with scripted_server(deaf) as server:
        with pytest.raises(DeadlinePassed):
            await post(transport, server.url, body=bytes(2**20), timeout=SHORT_S)


async def test_a_connect_timeout_ends_with_the_connection(transport: Transport) -> None:
    """Only connecting is under it; a slow answer is not."""

    async def slow(connection: ClientConnection) -> None:
        await connection.request()
        await asyncio.sleep(SHORT_S)
        await connection.send(OK)
        await connection.gone()

    async with scripted_server(slow) as server:
        assert (await post(transport, server.url, connect_timeout=SHORT_S / 2)).status == 200


# ---- Bounds --------------------------------------------------------------------------------------


async def test_a_time_out_of_the_kernel_is_not_the_deadline() -> None:
    bounds = Bounds(LONG_S, LONG_S)

    assert isinstance(bounds.failure(TimeoutError(110, "Connection timed out")), NeverConnected)
    async with bounds.scope:
        bounds.sending()
        assert type(bounds.failure(TimeoutError(110, "Connection timed out"))) is BrokenExchange
