"""A proxy in front of a PostgreSQL that cuts connections while statements are under way, delivers them late, and twice.

It does to the packets of statements what networks do: what was cut off may still arrive, and arrive again.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

FAULTS: Final = ("lost", "unanswered", "late", "twice", "slow")
"""`lost`: cut before it arrives. `unanswered`: it arrives, the answer does not. `late`: cut, and it arrives afterwards.
`twice`: it arrives, is cut, and arrives once more afterwards. `slow`: it only takes a while."""
STATEMENT: Final = b"B"
"""The first byte of a statement that is prepared already, of which the driver sends all at once."""
LONGEST_DELAY_S: Final = 0.8


class CuttingProxy:
    """`faulty`: the part of the statements that have a fault. `passes` cleared: nothing passes, and nobody is told."""

    def __init__(self, server: Path | tuple[str, int], random: Random, faulty: float = 0.0) -> None:
        self._server, self._random = server, random
        self.faulty = faulty
        self.done: Counter[str] = Counter()
        self.passes = asyncio.Event()
        self.passes.set()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await self._connect()
        except OSError:
            writer.close()  # the server is away, and so is this
            return
        for one in (writer, forth):
            self._writers.add(one)
        self._begin(self._statements(reader, forth, writer))
        self._begin(self._answers(back, writer))

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._server, Path):
            return await asyncio.open_unix_connection(str(self._server))
        return await asyncio.open_connection(*self._server)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _statements(
        self, reader: asyncio.StreamReader, forth: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        """Pass on what the client says, with faults."""
        try:
            while data := await reader.read(65_536):
                await self.passes.wait()
                if data[:1] == STATEMENT and self._random.random() < self.faulty:
                    if await self._fault(data, forth, client):
                        return
                else:
                    await _send(forth, data)
        except ConnectionError:
            pass
        finally:
            self._close(forth)

    async def _fault(self, data: bytes, forth: asyncio.StreamWriter, client: asyncio.StreamWriter) -> bool:
        """Do one of the faults; returns whether it ended the connection."""
        fault = self._random.choice(FAULTS)
        self.done[fault] += 1
        delay = self._random.uniform(0, LONGEST_DELAY_S)
        if fault == "slow":
            await asyncio.sleep(delay / 4)
            await _send(forth, data)
            return False
        if fault in ("unanswered", "twice"):
            await _send(forth, data)
            await asyncio.sleep(self._random.choice((0.0, 0.001)))  # it may have begun, or not
        _cut(client)
        if fault in ("late", "twice"):
            await asyncio.sleep(delay)
            await _send(forth, data)
            await asyncio.sleep(
                LONGEST_DELAY_S
            )  # until it is done: closing would not stop it, but it might not be read
        return True

    async def _answers(self, back: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass on what the server says. When the client was cut off, its answers go nowhere."""
        try:
            while data := await back.read(65_536):
                await self.passes.wait()
                if not client.is_closing():
                    await _send(client, data)
        except ConnectionError:
            pass
        finally:
            self._close(client)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()

    def cut_all(self) -> None:
        """Break every connection at once."""
        for writer in list(self._writers):
            _cut(writer)

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def _cut(writer: asyncio.StreamWriter) -> None:
    """Break a connection: the other side reads a reset, not an end."""
    if writer.is_closing():
        return
    taken = writer.get_extra_info("socket")
    if taken.family != socket.AF_UNIX:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    writer.transport.abort()


@asynccontextmanager
async def cutting_proxy(
    server: Path | tuple[str, int], random: Random, faulty: float = 0.0
) -> AsyncIterator[CuttingProxy]:
    """A proxy that listens on 127.0.0.1."""
    proxy = CuttingProxy(server, random, faulty)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.end()
