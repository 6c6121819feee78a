"""A load balancer that knows nothing: each connection goes to the next host, whether or not that one lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import cast


class RoundRobin:
    """Passes bytes on in both directions."""

    def __init__(self, places: Sequence[tuple[str, int]]) -> None:
        self._next = cycle(places)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[_End] = set()

    def accept(self) -> asyncio.Protocol:
        return _End(self._ends, self._connect)

    def _connect(self, front: _End) -> None:
        task = asyncio.create_task(self._join(front, next(self._next)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, front: _End, place: tuple[str, int]) -> None:
        try:
            _, back = await asyncio.get_running_loop().create_connection(lambda: _End(self._ends), *place)
        except OSError:
            front.close()  # as a balancer without health checks does
            return
        front.join(back)

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in list(self._ends):
            end.transport.abort()


class _End(asyncio.Protocol):
    """One end of a connection: what comes here leaves at the other one."""

    transport: asyncio.Transport

    def __init__(self, all_ends: set[_End], made: Callable[[_End], None] | None = None) -> None:
        self._all, self._made = all_ends, made
        self._other: _End | None = None
        self._early: list[bytes] = []
        """What came before there was an end to which it goes on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._all.add(self)
        if self._made is not None:
            self._made(self)

    def join(self, other: _End) -> None:
        if self.transport.is_closing() or other.transport.is_closing():
            self.close()
            other.close()
            return
        self._other, other._other = other, self
        other.transport.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
        else:
            self._other.transport.write(data)

    def pause_writing(self) -> None:
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.discard(self)
        if self._other is not None:
            self._other.close()

    def close(self) -> None:
        """Close it once all is sent that is to leave here."""
        self.transport.close()


@asynccontextmanager
async def round_robin(places: Sequence[tuple[str, int]]) -> AsyncIterator[int]:
    """Yields its port."""
    proxy = RoundRobin(places)
    server = await asyncio.get_running_loop().create_server(proxy.accept, "127.0.0.1", 0, backlog=512)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await proxy.end()
