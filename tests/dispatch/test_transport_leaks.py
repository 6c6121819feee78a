"""Cancelled calls: whenever it happens, the connection is closed, nothing stays behind, and the next call works."""

from __future__ import annotations

import asyncio
import gc
import os
from random import Random

import pytest

from tests.dispatch.event_loops import anyio_backend as anyio_backend
from tests.dispatch.scripted_server import (
    OK,
    ClientConnection,
    Script,
    always_ok,
    dripping,
    scripted_server,
    silent,
    unresponsive_port,
)
from tests.dispatch.test_transports import post, trusting
from tocsin.dispatch.transport import Transport

pytestmark = pytest.mark.anyio

CANCELLED = 1_000
AT_ONCE = 50


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def settled() -> None:
    """Sockets closed in this round of the loop are gone in the next ones."""
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)


async def cancel(call: asyncio.Task[object], random: Random, patience: int) -> None:
    """After some rounds of the loop; sometimes twice."""
    for _ in range(random.randrange(patience)):
        await asyncio.sleep(0)
    call.cancel()
    if random.random() < 0.3:
        await asyncio.sleep(0)
        call.cancel()
    await asyncio.wait([call])


async def slow(connection: ClientConnection) -> None:
    """Answers in halves, some rounds later."""
    while True:
        await connection.request()
        for piece in (OK[:20], OK[20:]):
            for _ in range(5):
                await asyncio.sleep(0)
            await connection.send(piece)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_thousand_cancelled_calls_leak_nothing(name: str, tls: bool) -> None:
    transport, random = trusting(name), Random(1)
    async with scripted_server(slow, tls=tls) as server:
        url = server.url.replace("http:", "https:") if tls else server.url
        await post(transport, url)
        before, tasks = descriptors() - 2 * server.open, len(asyncio.all_tasks()) - server.open
        for _ in range(CANCELLED // AT_ONCE):
            calls = [asyncio.ensure_future(post(transport, url)) for _ in range(AT_ONCE)]
            await asyncio.gather(*(cancel(call, random, 100) for call in calls))
        async with asyncio.timeout(2):
            answers = await asyncio.gather(*(post(transport, url) for _ in range(10)))
        assert [answer.body for answer in answers] == [b"ok"] * 10
        await transport.aclose()
        await server.empty()
        await settled()

        assert descriptors() <= before
        assert len(asyncio.all_tasks()) <= tasks


WHEN: dict[str, tuple[Script, bool]] = {
    "no answer yet": (silent, False),
    "in the TLS handshake": (silent, True),
    "in the headers": (dripping(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", 0.01), False),
    "in the body": (dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n", b"x", 0.01), False),
}


@pytest.mark.parametrize(("script", "tls"), WHEN.values(), ids=WHEN.keys())
async def test_a_cancelled_call_closes_its_connection(transport: Transport, script: Script, tls: bool) -> None:
    async with scripted_server(script) as server, scripted_server(always_ok) as other:
        url = server.url.replace("http:", "https:") if tls else server.url
        calls = [asyncio.ensure_future(post(transport, url)) for _ in range(5)]
        await server.until(lambda: server.open == 5 and (len(server.requests) == 5 or script is silent))
        for call in calls:
            call.cancel()
        await server.empty()

        assert all(
            isinstance(error, asyncio.CancelledError) for error in await asyncio.gather(*calls, return_exceptions=True)
        )
        assert (await post(transport, other.url)).body == b"ok"


async def test_calls_cancelled_while_connecting(transport: Transport) -> None:
    before = descriptors()
    with unresponsive_port() as port:
        calls = [asyncio.ensure_future(post(transport, f"http://127.0.0.1:{port}/")) for _ in range(50)]
        for _ in range(20):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    await settled()

    assert all(call.cancelled() for call in calls)
    assert descriptors() <= before + 1  # the selector of a thread pool may have come
    async with scripted_server(always_ok) as server:
        assert (await post(transport, server.url)).body == b"ok"


async def test_failed_calls_leak_nothing(transport: Transport) -> None:
    async def leaving(connection: ClientConnection) -> None:
        await connection.request()

    async with scripted_server(leaving) as server:
        await asyncio.gather(post(transport, server.url), return_exceptions=True)
        await server.empty()
        await settled()
        before, tasks = descriptors(), len(asyncio.all_tasks())
        await asyncio.gather(*(post(transport, server.url) for _ in range(200)), return_exceptions=True)
        await server.empty()
        await settled()

        assert descriptors() <= before
        assert len(asyncio.all_tasks()) <= tasks
