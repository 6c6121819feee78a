"""A served connection in memory, fed and looked at by tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from tocsin.actors.http.crowd import Crowd
from tocsin.cli.connections import Connection, Connections
from tocsin.cli.http_server import Server

App = Callable[[Any, Any, Any], Awaitable[None]]


class Wire(asyncio.Transport):
    """The other end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.writes = 0
        self.reading = True
        self._closing = False

    def write(self, data: Any) -> None:
        self.sent += data
        self.writes += bool(data)

    def close(self) -> None:
        self._closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.upgraded_to = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 8_321)}.get(name, default)


class Spied(Connection):
    """A connection that counts what it reads at once."""

    def __init__(self, *given: Any, **what: Any) -> None:
        super().__init__(*given, **what)
        self.at_once = 0

    def _read_at_once(self, data: bytes) -> bool:
        done = super()._read_at_once(data)
        self.at_once += done
        return done


@asynccontextmanager
async def connection(app: App) -> AsyncIterator[tuple[Spied, Wire]]:
    if not hasattr(app, "state"):
        app.state = SimpleNamespace(crowd=None)  # type: ignore[attr-defined]
    server, wire = Server(app), Wire()
    server.config.load()
    server.server_state.default_headers = [(b"date", b"today")]
    among = Connections(10, Crowd(asyncio.get_running_loop().time))
    made = Spied(among, config=server.config, server_state=server.server_state, app_state={"a": 1})
    made.connection_made(wire)
    try:
        yield made, wire
    finally:
        made.connection_lost(None)
        while made.tasks:
            await asyncio.wait(made.tasks)


async def answered(made: Spied) -> None:
    """Until nothing is being answered, or what is waits for the rest of its request."""
    for _ in range(30):
        if not made.tasks:
            return
        await asyncio.sleep(0)
