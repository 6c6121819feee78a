"""A load balancer that knows nothing: each connection goes to the next host, whether or not that one lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle


class RoundRobin:
    """Passes bytes on in both directions."""

    def __init__(self, places: Sequence[tuple[str, int]]) -> None:
        self._next = cycle(places)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection(*next(self._next))
        except OSError:
            writer.close()  # as a balancer without health checks does
            return
        for source, sink in ((reader, forth), (back, writer)):
            task = asyncio.create_task(_pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()


@asynccontextmanager
async def round_robin(places: Sequence[tuple[str, int]]) -> AsyncIterator[int]:
    """Yields its port."""
    proxy = RoundRobin(places)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=512)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await proxy.end()
