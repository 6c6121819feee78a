"""A host that is entered again sends callbacks again, over every transport, in the same event loop or in another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.dispatch.receiver.signed_callbacks import SECRET
from tocsin import ActorHost
from tocsin.dispatch.asgi_transport import AsgiTransport, Message, Send
from tocsin.dispatch.asgi_transport import Receive as AsgiReceive
from tocsin.dispatch.transport import Transport
from tocsin.dispatch.transports import NAMES, default_transport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class Receiving:
    """Answers 200 on a port, or as an app, and says when."""

    def __init__(self) -> None:
        self.port = 0
        self.arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(OK)
                self.arrived.set()
        writer.close()

    async def app(self, scope: Message, receive: AsgiReceive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        self.arrived.set()


def lives(transport: Transport, receiving: Receiving) -> list[Callable[[], Awaitable[None]]]:
    host = ActorHost.open(
        "memory:", origin=lambda: f"http://127.0.0.1:{receiving.port or 9}", secrets=[SECRET], transport=transport
    )

    async def live() -> None:
        receiving.arrived = asyncio.Event()
        async with await asyncio.start_server(receiving.serve, "127.0.0.1", 0) as server:
            receiving.port = server.sockets[0].getsockname()[1]
            async with host:
                await host.scheduler().run_after(0, "a:b")
                async with asyncio.timeout(10):
                    await receiving.arrived.wait()

    return [live, live, live]


@pytest.mark.parametrize("loops", ["one loop", "a loop each"])
@pytest.mark.parametrize("name", [*NAMES, "asgi"])
def test_a_host_that_is_entered_again_sends_callbacks_again(name: str, loops: str) -> None:
    receiving = Receiving()
    transport = AsgiTransport(receiving.app) if name == "asgi" else default_transport(name)

    async def all_of_them() -> None:
        for live in lives(transport, receiving):
            await live()

    if loops == "one loop":
        asyncio.run(all_of_them())
        return
    for live in lives(transport, receiving):
        asyncio.run(_awaited(live))


async def _awaited(live: Callable[[], Awaitable[None]]) -> None:
    await live()
