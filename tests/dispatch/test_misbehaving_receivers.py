"""Transports and receivers that speak out of turn, flood or fall silent: nobody else's job pays for it.

On both loops: `tocsin serve` runs on uvloop where it is installed.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import tracemalloc

import pytest

from tests.dispatch.event_loops import anyio_backend as anyio_backend
from tests.dispatch.scripted_server import OK, ClientConnection, Script, always_ok, dripping, scripted_server
from tests.dispatch.test_transport_leaks import descriptors, settled
from tests.dispatch.test_transports import post, trusting
from tocsin.dispatch.httpx_transport import READ_AT_ONCE, HttpxTransport
from tocsin.dispatch.transport import BrokenExchange, DeadlinePassed, NeverConnected, Transport

pytestmark = pytest.mark.anyio

SHORT_S = 0.25
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


# ---- Out of turn ---------------------------------------------------------------------------------

JUNK = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate",
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"\r\n\x00",
]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("lanes", [1, 8])
async def test_what_comes_while_a_connection_is_idle_never_settles_the_next_job(
    transport: Transport, junk: bytes, lanes: int
) -> None:
    late, sent = asyncio.Event(), asyncio.Semaphore(0)

    async def talkative(connection: ClientConnection) -> None:
        await connection.request()
        if late.is_set():
            await connection.send(OK)
        else:
            await connection.server.until(lambda: len(connection.server.requests) == lanes)
            await connection.send(OK)
            await late.wait()
            await connection.send(junk)
            sent.release()
        await connection.gone()

    async with scripted_server(talkative) as server:
        await asyncio.gather(*(post(transport, server.url) for _ in range(lanes)))
        late.set()
        for _ in range(lanes):
            await sent.acquire()
        await settled()
        answers = await asyncio.gather(*(post(transport, server.url) for _ in range(lanes)))

    assert [(answer.status, answer.body) for answer in answers] == [(200, b"ok")] * lanes
    assert (server.accepted, len(server.requests)) == (2 * lanes, 2 * lanes)


@pytest.mark.parametrize("banner", [b"SSH-2.0-OpenSSH_9.6\r\n", b"220 mail.example ESMTP\r\n"])
async def test_a_receiver_that_speaks_first_is_asked_once(transport: Transport, banner: bytes) -> None:
    async def greeting(connection: ClientConnection) -> None:
        await connection.send(banner)
        await connection.request()

    async with scripted_server(greeting) as server:
        with pytest.raises(BrokenExchange):
            await post(transport, server.url)
        await server.empty()

    assert server.accepted == 1


async def test_a_refusal_before_the_body_was_read_is_an_answer_and_spoils_nothing(transport: Transport) -> None:
    async def hasty(connection: ClientConnection) -> None:
        await connection.reader.readuntil(b"\r\n\r\n")
        await connection.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno")
        await connection.reader.readexactly(size)
        await always_ok(connection)

    size = 256 * 1024
    async with scripted_server(hasty) as server:
        first = await post(transport, server.url, body=b"x" * size)
        second = await post(transport, server.url, body=b"x" * size)

    assert (first.status, first.body) == (413, b"no")
    assert second.status in (200, 413)  # on the same connection, or on another


# ---- Floods --------------------------------------------------------------------------------------

FLOODS: dict[str, Script] = {
    "trailers": dripping(CHUNKS + b"2\r\nok\r\n0\r\n", b"x-t: yyyyyyyyyyyyyyyy\r\n" * 2_000, 0),
    "a chunk extension": dripping(CHUNKS + b"2;", b"y" * 60_000, 0),
    "a chunk size": dripping(CHUNKS, b"0" * 60_000, 0),
    "small headers": dripping(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10_000, 0),
    "a reason phrase": dripping(b"HTTP/1.1 200 ", b"y" * 60_000, 0),
    "interim answers": dripping(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 500, 0),
}


@pytest.mark.parametrize("script", FLOODS.values(), ids=FLOODS.keys())
async def test_a_flood_ends_with_the_deadline_and_takes_no_memory(transport: Transport, script: Script) -> None:
    async with scripted_server(script) as server:
        tracemalloc.start()
        try:
            with pytest.raises((BrokenExchange, DeadlinePassed)):
                await post(transport, server.url, timeout=SHORT_S)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await server.empty()

    assert peak < 8 * 1024 * 1024


async def test_an_answer_in_tiny_pieces_leaves_the_loop_to_others() -> None:
    async def crumbling(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(CHUNKS + b"1\r\nx\r\n" * crumbs + b"0\r\n\r\n")
        await connection.gone()

    async def others() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    transport, crumbs = HttpxTransport(), 20_000
    turns: list[int] = []
    async with scripted_server(crumbling) as server:
        watching = asyncio.create_task(others())
        answer = await post(transport, server.url)
        watching.cancel()
        await transport.aclose()

    assert len(answer.body) == crumbs
    assert len(turns) >= crumbs * len(b"1\r\nx\r\n") // READ_AT_ONCE


# ---- Silence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["cancelled", "deadline"])
async def test_a_tls_peer_that_fell_silent_keeps_no_descriptor(name: str, end: str) -> None:
    """An orderly end of TLS waits for the other side, 30 s long."""
    calls_made = 10

    async def falling_silent(connection: ClientConnection) -> None:
        await connection.request()
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    transport = trusting(name)
    async with scripted_server(falling_silent, tls=True) as server:
        url = server.url.replace("http:", "https:")
        before = descriptors()
        timeout = 20.0 if end == "cancelled" else 1.0
        calls = [asyncio.create_task(post(transport, url, timeout=timeout)) for _ in range(calls_made)]
        await server.until(lambda: len(server.requests) == calls_made)
        if end == "cancelled":
            for call in calls:
                call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        await settled()

        assert {type(each) for each in ends} == {asyncio.CancelledError if end == "cancelled" else DeadlinePassed}
        assert descriptors() <= before + calls_made  # the server's own
        await transport.aclose()


# ---- The end of what the machine has -------------------------------------------------------------


async def test_no_descriptor_left_is_nobodys_fault_and_passes(transport: Transport) -> None:
    async with scripted_server(always_ok) as server:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = [socket.socket() for _ in range(3)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(each.fileno() for each in taken) + 1, hard))
        try:
            taken += fill()
            with pytest.raises(NeverConnected):
                await post(transport, server.url)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in taken:
                each.close()
        assert (await post(transport, server.url)).body == b"ok"

    assert len(server.requests) == 1


def fill() -> list[socket.socket]:
    """Sockets until there are no more."""
    sockets = []
    while True:
        try:
            sockets.append(socket.socket())
        except OSError:
            return sockets
