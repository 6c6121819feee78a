"""Loopback servers that run a script for each connection and record every request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

PATIENCE_S = 5.0
CERTIFICATE = Path(__file__).parent / "data" / "localhost.pem"

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Script = Callable[["ClientConnection"], Awaitable[None]]


class ClientConnection:
    """One connection of a client."""

    def __init__(self, server: ScriptedServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server, self.reader, self.writer = server, reader, writer

    async def request(self) -> bytes:
        """The next whole request, noted in `server.requests`. EOFError if the client leaves instead."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        request = head + await self.reader.readexactly(length)
        self.server.requests.append(request)
        self.server.changed()
        return request

    async def send(self, data: bytes) -> None:
        if self.writer.is_closing():
            raise ConnectionResetError("the client left")
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Until the client closes."""
        while await self.reader.read(65_536):
            pass

    def reset(self) -> None:
        """A TCP reset instead of an orderly end."""
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


class ScriptedServer:
    """What came so far. A connection is open until the client is known to have closed it or the script has ended."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._changed = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        self.accepted = 0
        self.open = 0
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/_tocsin/callback"

    def changed(self) -> None:
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def empty(self) -> None:
        """Until nobody is connected."""
        await self.until(lambda: self.open == 0)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._host(ClientConnection(self, reader, writer)))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _host(self, connection: ClientConnection) -> None:
        self.accepted += 1
        self.open += 1
        self.changed()
        try:
            await self._script(connection)
        except (EOFError, ConnectionError, ssl.SSLError):
            pass  # the client left
        finally:
            connection.writer.transport.abort()
            self.open -= 1
            self.changed()

    async def end(self) -> None:
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


@asynccontextmanager
async def scripted_server(
    script: Script, *, tls: bool = False, certificate: Path | None = None, address: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[ScriptedServer]:
    """A server whose every connection runs `script`; with TLS if it is given a certificate, or `tls`."""
    scripted = ScriptedServer(script)
    certificate = certificate or (CERTIFICATE if tls else None)
    context = None if certificate is None else server_tls(certificate)
    server = await asyncio.start_server(scripted.connected, address, port, ssl=context, backlog=1_024)
    scripted.port = server.sockets[0].getsockname()[1]
    try:
        yield scripted
    finally:
        server.close()
        await scripted.end()
        await asyncio.sleep(0)  # aborted transports close in the loop's next round


def server_tls(certificate: Path = CERTIFICATE) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def trusting_tls() -> ssl.SSLContext:
    """A client's context that trusts `serving(..., tls=True)`, and nobody else."""
    return ssl.create_default_context(cafile=CERTIFICATE)


@contextmanager
def refused_port() -> Iterator[int]:
    """Bound, so nobody else gets it, and not listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextmanager
def unresponsive_port() -> Iterator[int]:
    """A full backlog: connecting takes for ever."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(deaf.getsockname())
            yield deaf.getsockname()[1]
        finally:
            for filler in fillers:
                filler.close()


# ---- Scripts -------------------------------------------------------------------------------------


async def always_ok(connection: ClientConnection) -> None:
    while True:
        await connection.request()
        await connection.send(OK)


async def silent(connection: ClientConnection) -> None:
    """Reads, never answers."""
    await connection.gone()


def answering(*pieces: bytes) -> Script:
    """Each request is answered with these bytes, and the connection left open."""

    async def script(connection: ClientConnection) -> None:
        while True:
            await connection.request()
            for piece in pieces:
                await connection.send(piece)

    return script


def closing_after(*pieces: bytes) -> Script:
    """One request, these bytes, an orderly end."""

    async def script(connection: ClientConnection) -> None:
        await connection.request()
        for piece in pieces:
            await connection.send(piece)
        connection.writer.write_eof()
        await connection.gone()

    return script


def resetting_after(*pieces: bytes) -> Script:
    """One request, these bytes, a reset."""

    async def script(connection: ClientConnection) -> None:
        await connection.request()
        for piece in pieces:
            await connection.send(piece)
        connection.reset()

    return script


def dripping(start: bytes, drop: bytes, every_s: float = 0.02) -> Script:
    """One request, then `start`, then `drop` again and again until the client leaves."""

    async def script(connection: ClientConnection) -> None:
        await connection.request()
        await connection.send(start)
        while not connection.reader.at_eof():
            await connection.send(drop)
            await asyncio.sleep(every_s)

    return script
