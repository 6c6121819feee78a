"""Our own transport, where it differs from the others: what it writes, which connections it trusts, how it closes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.dispatch import name_lookups
from tests.dispatch.scripted_server import (
    OK,
    ClientConnection,
    always_ok,
    scripted_server,
    silent,
    trusting_tls,
    unresponsive_port,
)
from tests.dispatch.test_transport_leaks import descriptors, settled
from tests.dispatch.test_transports import BODY, HEADERS, post
from tocsin.dispatch import builtin_transport
from tocsin.dispatch.builtin_transport import BuiltinTransport
from tocsin.dispatch.transport import BrokenExchange, DeadlinePassed, NeverConnected

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def transport() -> AsyncIterator[BuiltinTransport]:
    transport = BuiltinTransport()
    yield transport
    await transport.aclose()


# ---- Requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", [("x-a", "a\r\nx-b: c"), ("x-a", "a\nb"), ("x-a", "a\rb"), ("x\n", "a"), ("x-a", "a\0"), ("x-a", "☃")]
)
async def test_a_header_that_would_be_two_is_never_sent(transport: BuiltinTransport, header: tuple[str, str]) -> None:
    async with scripted_server(always_ok) as server:
        for headers in ({**HEADERS, header[0]: header[1]}, {header[0]: header[1]}):
            with pytest.raises(NeverConnected):
                await transport.post(server.url, headers, BODY, connect_timeout=5, timeout=5, max_body=10)

    assert server.accepted == 0


@pytest.mark.parametrize("path", ["/a b", "/a\r\nx-b: c", "/\x00", "/é", "/\x7f"])
async def test_a_url_that_would_end_its_line_is_never_sent(transport: BuiltinTransport, path: str) -> None:
    async with scripted_server(always_ok) as server:
        with pytest.raises(NeverConnected):
            await post(transport, f"http://127.0.0.1:{server.port}{path}")

    assert server.accepted == 0


async def test_a_call_without_headers_and_with_its_own(transport: BuiltinTransport) -> None:
    async with scripted_server(always_ok) as server:
        for headers in ({}, {"accept": "x/y"}):
            await transport.post(server.url, headers, b"", connect_timeout=5, timeout=5, max_body=10)

    first, second = (request.decode().split("\r\n") for request in server.requests)
    assert "accept: */*" in first and "content-length: 0" in first
    assert "accept: x/y" in second and "accept: */*" not in second


async def test_the_query_of_a_url_is_sent_and_its_user_and_fragment_are_not(transport: BuiltinTransport) -> None:
    async with scripted_server(always_ok) as server:
        await post(transport, f"http://user:hunter2@127.0.0.1:{server.port}/a?b=c#d")

    line, host, *_ = server.requests[0].decode().split("\r\n")
    assert (line, host) == ("POST /a?b=c HTTP/1.1", f"host: 127.0.0.1:{server.port}")


async def test_what_has_served_on_a_connection_and_hangs_up_is_not_said_to_speak_tls(
    transport: BuiltinTransport,
) -> None:
    async def dies_at_the_second(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()
        connection.writer.write_eof()
        await connection.gone()

    async with scripted_server(dies_at_the_second) as server:
        assert (await post(transport, server.url)).status == 200
        with pytest.raises(BrokenExchange) as caught:
            await post(transport, server.url)

    assert server.accepted == 1
    assert str(caught.value) == "the connection was closed without an answer, as by a receiver that is killed"


async def test_many_urls_are_not_remembered_for_ever(transport: BuiltinTransport) -> None:
    async with scripted_server(always_ok) as server:
        for number in range(200):
            assert (await post(transport, f"{server.url}/{number}")).body == b"ok"

    assert server.accepted == 1
    assert len(transport._targets) <= builtin_transport.TARGETS


# ---- Which connection ----------------------------------------------------------------------------


@contextmanager
def a_server_in_a_thread(afterwards: bytes | None) -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """Yield a server's URL, an event that makes it speak (or hang up, for None) on its first connection, and one that
    says it has."""
    listener = socket.create_server(("127.0.0.1", 0))
    speak, spoken = threading.Event(), threading.Event()

    def answer(client: socket.socket) -> None:
        assert client.recv(65_536)
        client.sendall(OK)

    def serve() -> None:
        first, _ = listener.accept()
        answer(first)
        speak.wait()
        if afterwards is None:
            first.close()
        else:
            first.sendall(afterwards)
        spoken.set()
        second, _ = listener.accept()
        answer(second)
        first.close()
        second.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", speak, spoken
    finally:
        listener.close()
        thread.join(5)


@pytest.mark.parametrize("afterwards", [None, OK.replace(b"ok", b"no"), b"x"])
async def test_what_came_while_the_loop_stood_still_never_settles_the_next_job(
    transport: BuiltinTransport, afterwards: bytes | None
) -> None:
    with a_server_in_a_thread(afterwards) as (url, speak, spoken):
        assert (await post(transport, url)).body == b"ok"
        speak.set()
        spoken.wait(5)  # the loop stands still meanwhile
        assert (await post(transport, url)).body == b"ok"


async def test_a_place_is_host_port_and_scheme(transport: BuiltinTransport) -> None:
    async with scripted_server(always_ok) as one, scripted_server(always_ok) as other:
        for _ in range(2):
            for server in (one, other):
                await post(transport, server.url)

    assert (one.accepted, other.accepted) == (1, 1)


async def test_ipv6(transport: BuiltinTransport) -> None:
    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(serve, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    answer = await post(transport, f"http://[::1]:{port}/")
    for writer in writers:
        writer.transport.abort()
    server.close()

    assert answer.body == b"ok"


class Refusing(ThreadPoolExecutor):
    """An executor that the app keeps to itself."""

    def submit(self, *ignored: object, **also: object) -> Any:
        raise AssertionError("the executor belongs to the app")


async def test_names_are_not_looked_up_on_the_executor_of_the_app(transport: BuiltinTransport) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Refusing())
    try:
        async with scripted_server(always_ok) as server:
            answer = await post(transport, server.url.replace("127.0.0.1", "localhost"))
    finally:
        loop.set_default_executor(ThreadPoolExecutor())
    name_lookups.wait_for_lookups()

    assert answer.body == b"ok"


# ---- One timer for many calls --------------------------------------------------------------------


async def test_a_shorter_deadline_on_a_connection_with_a_longer_one_behind_it(transport: BuiltinTransport) -> None:
    async def once(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()
        await connection.gone()

    async with scripted_server(once) as server:
        await post(transport, server.url, timeout=60.0)
        with pytest.raises(DeadlinePassed, match=r"none after 0\.1 s"):
            await post(transport, server.url, timeout=0.1)

    assert server.accepted == 1


async def test_a_longer_deadline_on_a_connection_with_a_shorter_one_behind_it(transport: BuiltinTransport) -> None:
    async def slow_at_last(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(OK)
        await connection.request()
        await asyncio.sleep(0.2)
        await connection.send(OK)

    async with scripted_server(slow_at_last) as server:
        await post(transport, server.url, timeout=0.1)
        assert (await post(transport, server.url, timeout=60.0)).body == b"ok"


# ---- The end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_closing_breaks_calls_in_flight_and_leaves_no_descriptor(tls: bool) -> None:
    transport = BuiltinTransport(ssl_context=trusting_tls())
    async with scripted_server(silent, tls=tls) as server:
        url = server.url.replace("http:", "https:") if tls else server.url
        before = descriptors()
        calls = [asyncio.create_task(post(transport, url)) for _ in range(5)]
        await server.until(lambda: server.open == 5)
        await settled()
        await transport.aclose()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        await server.empty()
        await settled()

        assert {type(end) for end in ends} == {BrokenExchange}
        assert descriptors() <= before


async def test_closing_ends_calls_that_are_connecting() -> None:
    transport = BuiltinTransport()
    with unresponsive_port() as port:
        call = asyncio.create_task(post(transport, f"http://127.0.0.1:{port}/"))
        await settled()
        await transport.aclose()
        with pytest.raises(NeverConnected, match="the transport is closed"):
            await call


async def test_it_opens_again() -> None:
    transport = BuiltinTransport()
    async with scripted_server(always_ok) as server:
        for _ in range(2):
            assert (await post(transport, server.url)).body == b"ok"
            await transport.aclose()
            transport.reopen()
