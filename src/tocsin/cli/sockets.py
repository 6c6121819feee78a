"""WebSockets of a server: connections that were upgraded count among the others, until they are closed."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

GOING_AWAY: Final = 1001
UNREAD: Final = 128 * 1024
"""Bytes that the system keeps for a watcher that does not read, about."""
_LOG: Final = logging.getLogger("tocsin.http.sockets")
"""uvicorn writes the URLs of sockets to its log, and with them what stands in a query."""
_LOG.setLevel(logging.WARNING)


class Socket(WebSocketsSansIOProtocol):
    """A WebSocket that reports whether it is read, and when it is closed."""

    def __init__(
        self, waits: Callable[[], None], goes_on: Callable[[], None], closed: Callable[[], None], **what: Any
    ) -> None:
        super().__init__(**what)
        self.logger = _LOG
        self._waits, self._goes_on, self._closed = waits, goes_on, closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Left alone, the system takes up to some MiB for each watcher that does not read, before anybody notices.
        if (connected := transport.get_extra_info("socket")) is not None:
            with suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waits()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._goes_on()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent or self.transport.is_closing():
            # It was refused, or has left meanwhile: then nothing is missing. Without this uvicorn would log an error,
            # and anybody could fill the log.
            self.handshake_complete = True

    def shutdown(self) -> None:
        """Close the socket as the server stops."""
        if self.transport.is_closing():
            return None
        if self.close_sent or not self.handshake_complete:
            return super().shutdown()
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY})
        self.conn.send_close(GOING_AWAY)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
        return None
