"""One connection of the built-in transport: a protocol on asyncio or uvloop, and the call that has it."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
from ipaddress import ip_address
from typing import Final, Protocol, TypeAlias, cast

from tocsin.dispatch.answer_reader import AnswerReader
from tocsin.dispatch.connection_faults import in_words
from tocsin.dispatch.names import AddressInfo, names
from tocsin.dispatch.transport import Answer, BrokenExchange, DeadlinePassed

Place: TypeAlias = tuple[str, int, bool]
"""Host, port, and whether TLS is spoken there."""

IN_PROGRESS: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN})
NOT_CONNECTED: Final = asyncio.Transport()


class Owner(Protocol):
    """Calls from a connection to its transport."""

    buffer: memoryview
    """The buffer that all its connections read into; the data is consumed in the same call."""

    def made(self, connection: Connection) -> None:
        """Note a connection, until it is lost."""
        ...

    def lost(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        ...

    def keep(self, connection: Connection) -> None:
        """Hold a connection for the next call to its place."""
        ...


class Connection(asyncio.BufferedProtocol):
    """One connection, and the call that has it."""

    __slots__ = (
        "_answer",
        "_asked",
        "_deadline",
        "_owner",
        "_poll",
        "_reader",
        "_timeout",
        "_timer",
        "_transport",
        "idle_since",
        "place",
        "url",
    )

    def __init__(self, owner: Owner, place: Place) -> None:
        self._owner, self.place, self.url = owner, place, ""
        self._transport = NOT_CONNECTED
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._timeout = self.idle_since = 0.0
        self._poll: select.poll | None = None

    def begin(self, url: str, reader: AnswerReader) -> None:
        """Belong to a call to `url`. `reader` reads what comes, even if it comes before the request was sent."""
        self.url = url
        self._reader: AnswerReader | None = reader
        self._answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked = False

    async def exchange(self, request: bytes, start: float, timeout: float) -> Answer:
        """Send `request` and return its answer. Cancelled, the connection is closed."""
        reader, answer = self._reader, self._answer
        if reader is not None:
            self._deadline, self._timeout = start + timeout, timeout
            if self._timer is None or self._timer.when() > self._deadline:
                self._arm(answer.get_loop())
            self._asked = True
            self._transport.write(request)
        try:
            return await answer
        except asyncio.CancelledError:
            if self._reader is reader:  # else the connection may be another call's by now
                self.abort()
            raise

    def forget(self) -> None:
        """Give up the call before it was sent."""
        self._reader = None
        self.abort()
        if not self._answer.cancel():
            self._answer.exception()  # nobody will ask for it

    def is_closing(self) -> bool:
        """Return whether the connection has ended, or is about to."""
        return self._transport.is_closing()

    def is_silent(self) -> bool:
        """Return whether the other side has neither sent nor ended anything that the loop has not seen yet."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._poll.poll(0)

    # ---- The deadline: one timer for many calls -------------------------------------------------

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._deadline, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the call at its deadline; a timer that an earlier call set is armed again."""
        self._timer = None
        if self._reader is None:
            return
        if self._deadline - loop.time() > 0.001:
            self._arm(loop)
        else:
            self.fail(DeadlinePassed(f"none after {self._timeout:g} s"))

    # ---- What the loop says ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of its classes
        self._owner.made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._owner.buffer

    def buffer_updated(self, nbytes: int) -> None:
        reader = self._reader
        if reader is None:
            self.abort()  # nobody asked, and the next call would take it for its answer
            return
        reader.feed(self._owner.buffer[:nbytes])
        if reader.ended:
            self._conclude(reader)

    def eof_received(self) -> bool:
        if self._reader is not None:
            self._reader.eof()
            self._conclude(self._reader)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.eof_received()
        else:
            self.fail(BrokenExchange(in_words(exc, self.url)))
        if self._timer is not None:
            self._timer.cancel()
        self._owner.lost(self)

    # ---- Ends ------------------------------------------------------------------------------------

    def _conclude(self, reader: AnswerReader) -> None:
        """Give the answer, or its fault, to the call; keep the connection if nothing else can come on it."""
        self._reader = None
        unsent = self._transport.get_write_buffer_size() if self._asked else 1
        if reader.reusable and not unsent and not self._transport.is_closing():
            self._owner.keep(self)
        else:
            self.abort()
        if self._answer.done():
            return
        if reader.answer is not None:
            self._answer.set_result(reader.answer)
        else:
            self._answer.set_exception(BrokenExchange(reader.fault or "the connection ended without an answer"))

    def fail(self, error: Exception) -> None:
        """End the call, if there is one, with `error`, and the connection."""
        if self._reader is not None and not self._answer.done():
            self._answer.set_exception(error)
        self._reader = None
        self.abort()

    def abort(self) -> None:
        """Close at once: a TLS peer that fell silent would keep the connection for another while."""
        if self._transport is not NOT_CONNECTED:
            self._transport.abort()

    def close(self) -> None:
        """Close in order."""
        self._transport.close()


# ---- Addresses -----------------------------------------------------------------------------------


async def addresses_of(host: str, port: int) -> list[AddressInfo]:
    """Return where a host may be reached; an address is looked up nowhere."""
    if "%" not in host:
        try:
            version = ip_address(host).version
        except ValueError:
            pass
        else:
            family, address = (socket.AF_INET, (host, port)) if version == 4 else (socket.AF_INET6, (host, port, 0, 0))
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]
    return list(dict.fromkeys(await names.look_up(host, port)))


async def connected(info: AddressInfo) -> socket.socket:
    """Return a socket that is connected to one address. OSError if there is nobody.

    The loop's own way asks its default executor about some addresses, which belongs to the app.
    """
    made = socket.socket(info[0], socket.SOCK_STREAM, info[2])
    try:
        made.setblocking(False)
        error = made.connect_ex(info[4])
        if error in IN_PROGRESS:
            await _writable(made)
            error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
    except BaseException:
        made.close()
        raise
    return made


async def _writable(made: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(made.fileno(), note)
    try:
        await ready
    finally:
        loop.remove_writer(made.fileno())
