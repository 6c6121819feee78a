"""Limit how many connections a server holds, and how long each may stay idle or incomplete.

Each connection takes a descriptor, and callbacks need some too. So there are never more than `most`: whoever comes then
takes the place of the connection that has dawdled longest, and is refused only if none does. A connection dawdles while
the server waits for it: for the head of its next request, for the rest of a body, or for it to read an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Any, Final

from h11 import IDLE, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from tocsin.actors.http.crowd import Crowd
from tocsin.cli.plain_requests import Head, PlainCycle, head_of
from tocsin.cli.sockets import Socket

OTHERS: Final = 64
"""Descriptors reserved for the store, the loop, the log and what handlers open."""
LEAST: Final = 16
MOST: Final = 10_000
SWEEP_S: Final = 1.0
FULL: Final = "CONNECTIONS_FULL"
REFUSED: Final = (
    b'{"error":{"code":"OVERLOADED","message":"this server holds as many connections as it may: '
    b'try again in a moment"}}'
)
REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncache-control: no-store\r\n"
    b"retry-after: 1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(REFUSED), REFUSED)
)


class Dawdles(Enum):
    """A state in which the server waits for the client; its value is the limit in seconds."""

    HEAD = 10.0
    BODY = 75.0
    READING = 60.0


def room_for(descriptors: int, callbacks: int) -> int:
    """Return how many connections the descriptors leave room for beside the callbacks; at least a quarter."""
    return min(max(descriptors - callbacks - OTHERS, descriptors // 4, LEAST), MOST)


def descriptors_allowed() -> int:
    """Return how many descriptors this process may have open."""
    try:
        import resource
    except ImportError:  # Windows: as many as handles
        return MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST * 2 if soft == resource.RLIM_INFINITY else soft


class Connections:
    """The connections of one server. Times are the loop's."""

    def __init__(self, most: int, crowd: Crowd) -> None:
        self._most, self._crowd = most, crowd
        self._open: set[Connection] = set()
        self._dawdling: dict[Dawdles, dict[Connection, float]] = {kind: {} for kind in Dawdles}
        """Connections that the server waits for and since when, the longest first."""
        self._sweeping: asyncio.TimerHandle | None = None

    def count(self) -> int:
        """Count the open connections."""
        return len(self._open)

    def admit(self, one: Connection) -> bool:
        """Make room for a new connection; False if there is none."""
        if len(self._open) >= self._most and not self._make_room():
            self._crowd.note(FULL, f"{len(self._open)} connections are open, the limit, and all are served: refused")
            return False
        self._open.add(one)
        return True

    def _make_room(self) -> bool:
        for among in self._dawdling.values():
            for one in among:
                self._crowd.note(
                    FULL,
                    f"{len(self._open)} connections are open, the limit: those that have dawdled longest are closed",
                )
                self._close([one])
                return True
        return False

    def leave(self, one: Connection) -> None:
        self._open.discard(one)
        self.busy(one)

    def busy(self, one: Connection) -> None:
        """Note that the connection waits for the server."""
        for among in self._dawdling.values():
            among.pop(one, None)

    def dawdles(self, one: Connection, kind: Dawdles) -> None:
        """Note that the server waits for the connection, from now on."""
        self.busy(one)
        if one not in self._open:
            return
        loop = asyncio.get_running_loop()
        self._dawdling[kind][one] = loop.time()
        if self._sweeping is None:
            self._sweeping = loop.call_later(SWEEP_S, self._sweep)

    def close_dawdling(self) -> None:
        """Close idle and incomplete connections, as the server stops."""
        for among in self._dawdling.values():
            self._close([*among])

    def _close(self, those: Iterable[Connection]) -> None:
        for one in those:
            self.leave(one)
            one.cut()

    def _sweep(self) -> None:
        """Close the connections whose time is over."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for kind, among in self._dawdling.items():
            self._close([one for one, since in among.items() if now - since >= kind.value])
        going_on = any(self._dawdling.values())
        self._sweeping = loop.call_later(SWEEP_S, self._sweep) if going_on else None


class Connection(H11Protocol):
    """A connection that reports what it waits for."""

    def __init__(self, among: Connections, **what: Any) -> None:
        super().__init__(**what)
        self._among = among
        # Reports of an upgraded connection go on under this one, which no transport calls any more.
        self.ws_protocol_class = partial(  # type: ignore[assignment]  # it is called as a class is
            Socket, partial(among.dawdles, self, Dawdles.READING), partial(among.busy, self), partial(among.leave, self)
        )
        self._refused = self._upgraded = False
        self._dawdles: Dawdles | None = None
        self._head: Head | None = None
        """The last head that was read at once."""
        self._plain: PlainCycle | None = None
        """The request that is being answered and that h11 knows nothing of."""
        self._behind = b""
        """Bytes that came behind it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if not self._among.admit(self):
            self._refused = True
            transport.write(REFUSAL)
            transport.close()
            return
        super().connection_made(transport)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._among.leave(self)
        if not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._plain is not None and (self._plain.plain or self._behind):
            self._behind += data
            self.flow.pause_reading()
        elif not self._read_at_once(data):
            super().data_received(data)

    def _read_at_once(self, data: bytes) -> bool:
        """Begin to answer `data` if it is one whole plain request, and no other is being read or answered."""
        conn, cycle = self.conn, self.cycle
        if self.access_log or conn.their_state is not IDLE or conn.our_state is not IDLE or conn.trailing_data[0]:
            return False
        if cycle is not None and not cycle.response_complete:
            return False
        head = self._head
        if head is None or not head.begins(data):
            head = head_of(data)
            if head is None:
                return False
            self._head = head
        self._unset_keepalive_if_required()
        self.headers = head.headers.copy()
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]
            "method": head.method,
            "root_path": self.root_path,
            "path": self.root_path + head.path,
            "raw_path": self.root_path.encode("ascii") + head.raw_path,
            "query_string": head.query,
            "headers": self.headers,
            "state": self.app_state.copy(),
        }
        self.cycle = self._plain = PlainCycle(self, self.scope, head, data, self.on_response_complete)
        task = self.loop.create_task(self.cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._look()
        return True

    def handle_events(self) -> None:
        super().handle_events()
        if not self._upgraded:
            self._look()

    def handle_websocket_upgrade(self, event: Request) -> None:
        self._upgraded = True
        self._among.busy(self)
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self._look()
        super().on_response_complete()
        self._plain = None
        if self._behind and not self.transport.is_closing():
            behind, self._behind = self._behind, b""
            self.data_received(behind)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def _look(self) -> None:
        """Note what is waited for, if that has changed. Pieces of a head or a body change nothing."""
        cycle = self.cycle
        if self.flow.write_paused:
            kind: Dawdles | None = Dawdles.READING
        elif cycle is None or cycle.response_complete:
            kind = Dawdles.READING if self.transport.get_write_buffer_size() else Dawdles.HEAD
        else:
            kind = Dawdles.BODY if cycle.more_body else None
        if kind is not self._dawdles:
            self._dawdles = kind
            if kind is None:
                self._among.busy(self)
            else:
                self._among.dawdles(self, kind)

    def cut(self) -> None:
        """Close the connection now, without waiting for anything it could still send or read."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()
