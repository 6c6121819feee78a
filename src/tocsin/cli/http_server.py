"""One ASGI app on one bound socket, inside somebody else's event loop: uvicorn without its signal handling,
so that whoever composes the process decides the order in which it stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import uvicorn

from tocsin.actors.http.crowd import Crowd
from tocsin.cli.connections import Connection, Connections
from tocsin.cli.failure import Unbound

BACKLOG: Final = 2048
MOST_CONNECTIONS: Final = 512
MOST_HEARD: Final = 4 * 1024
"""Bytes of a message on a WebSocket: nothing long is said there."""
SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Why a connection cannot be taken up now, and may be later."""
AGAIN_S: Final = 0.2
GRACE_S: Final = 5
"""How long requests under way may take once the server was told to stop; half as long for one to become whole."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Failure says why not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise Unbound(f"{host} is no address of this machine: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise Unbound(_why_unbound(error, host, port)) from None
    listener.setblocking(False)
    return listener


def _why_unbound(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use: stop what listens there, or choose another with "
            "--port (TOCSIN_PORT); 0 takes a free one"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine: choose another with --host (TOCSIN_HOST)"
    return f"{host} port {port} cannot be bound: {error.strerror}"


def url_of(listener: socket.socket) -> str:
    """Return the URL of the socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals alone and says when it is ready."""

    def __init__(self, app: Any, *, access_log: bool = False, most: int = MOST_CONNECTIONS) -> None:
        self._crowd: Crowd = getattr(app.state, "crowd", None) or Crowd(asyncio.get_running_loop().time)
        self._connections = Connections(most, self._crowd)
        if (changes := getattr(app.state, "changes", None)) is not None:
            changes.longest_s = math.inf  # who stops this server lets all who wait go first
        if (traffic := getattr(app.state, "traffic", None)) is not None:
            traffic.connections = self._connections.count
        self._accepting: list[asyncio.Task[None]] = []
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=MOST_HEARD,
                ws_per_message_deflate=False,  # a frame is made once for all, and compressed for each
                lifespan="off",
                log_config=None,
                access_log=access_log,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets or ()]
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for one in self._accepting:
            one.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        cutting = asyncio.get_running_loop().call_later(GRACE_S / 2, self._connections.close_dawdling)
        try:
            await super().shutdown(sockets=sockets)
        finally:
            cutting.cancel()

    async def _accept(self, listener: socket.socket) -> None:
        """Take up connections one by one. Event loops take up all that wait at once, and so every descriptor there is:
        no callback could go out, and the connections in excess could not be closed before they were all open."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                taken, _ = await loop.sock_accept(listener)
            except OSError as error:  # of descriptors, memory, or the caller, who has left already
                if error.errno in SHORT:
                    self._crowd.note("CONNECTIONS_FULL", f"no connection can be taken up: {error.strerror}")
                    await asyncio.sleep(AGAIN_S)
                continue
            try:
                await loop.connect_accepted_socket(self._connection, taken)
            except OSError:  # it has left already
                taken.close()

    def _connection(self) -> Connection:
        return Connection(
            self._connections, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


@contextlib.asynccontextmanager
async def serving(app: Any, listener: socket.socket) -> AsyncIterator[str]:
    """Serve in the background as long as the block lasts; yields the URL once requests are answered."""
    server = Server(app)
    url = url_of(listener)
    served = asyncio.create_task(server.serve(sockets=[listener]), name=f"serving {url}")
    ready = asyncio.create_task(server.ready.wait())
    try:
        await asyncio.wait({served, ready}, return_when=asyncio.FIRST_COMPLETED)
        yield url
    finally:
        server.should_exit = True
        ready.cancel()
        await served


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's when it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
