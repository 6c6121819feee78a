"""A way to a server that can be cut: both ends then lose the connection, and neither tells the other anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.postgres import Postgres


class Way:
    """What stands between clients and a server; `url` leads through it."""

    def __init__(self, door: asyncio.Server, url: str) -> None:
        self.door, self.url = door, url
        self.tasks: set[asyncio.Task[None]] = set()
        self.ends: list[asyncio.StreamWriter] = []

    def swallow(self) -> None:
        """Pass on nothing more of the connections that there are, and tell neither end; new ones are as ever."""
        for task in self.tasks:
            task.cancel()
        self.tasks.clear()

    def cut(self) -> None:
        """Drop the clients' ends at once; the server's ends stay open, so that it notices nothing."""
        for task in self.tasks:
            task.cancel()
        for end in self.ends:
            end.transport.abort()
        self.ends.clear()


@asynccontextmanager
async def way_to(server: Postgres, url_query: str = "") -> AsyncIterator[Way]:
    towards: list[asyncio.StreamWriter] = []

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            target.write(data)
        target.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(server.socket)
        way.ends.append(writer)
        towards.append(back)
        for source, target in ((reader, back), (there, writer)):
            task = asyncio.create_task(carry(source, target))
            way.tasks.add(task)
            task.add_done_callback(way.tasks.discard)

    door = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = door.sockets[0].getsockname()[1]
    way = Way(door, f"postgresql://postgres@127.0.0.1:{port}/postgres?{url_query}")
    try:
        yield way
    finally:
        door.close()
        way.cut()
        for end in towards:
            end.transport.abort()
        await asyncio.sleep(0.01)  # their sockets are closed in the loop's next steps
