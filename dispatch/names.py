"""Name lookups on threads of our own, and connections that use them.

The event loop looks names up on its default executor, which belongs to the app: forty slow `asyncio.to_thread` calls
there, and no callback connects, no lease is renewed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, TypeVar

import httpcore
import httpx

from tocsin.dispatch.addresses import Addresses

AddressInfo: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` gives it."""
A = TypeVar("A")
C = TypeVar("C")
Question: TypeAlias = tuple[str, int, int]
Waiting: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Future[list[AddressInfo]]]

THREADS: Final = 8
"""A resolver that hangs holds up this many names, and a name only once."""
NEXT_ADDRESS_S: Final = 0.25
"""How long an address has for itself before the next one is tried beside it (RFC 8305)."""


class Names:
    """Looks names up for any number of loops and threads. Who asks for a name that is being looked up waits with the
    others. A thread lives as long as there is something to look up, and holds up no process that ends."""

    def __init__(self, threads: int = THREADS) -> None:
        self._limit = threads
        self.forget()

    def forget(self) -> None:
        """Forget all questions in a process that was forked: it has no threads, so nobody would answer them."""
        self._lock = threading.Lock()
        self._asked: dict[Question, list[Waiting]] = {}
        self._queued: deque[Question] = deque()
        self._threads = 0

    async def look_up(self, host: str, port: int, family: int = socket.AF_UNSPEC) -> list[AddressInfo]:
        """Look a name up. Raise what `socket.getaddrinfo` does: OSError, UnicodeError. Cancelled, others still wait."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[AddressInfo]] = loop.create_future()
        question = (host, port, family)
        with self._lock:
            if (waiting := self._asked.get(question)) is not None:
                waiting.append((loop, answer))
            else:
                self._asked[question] = [(loop, answer)]
                self._queued.append(question)
                if self._threads < self._limit:
                    self._begin_another(question)
        return await answer

    def _begin_another(self, question: Question) -> None:
        """Start a thread. OSError if none can be had, and none is at work that would come to the question later."""
        self._threads += 1
        try:
            threading.Thread(target=self._work, name="tocsin-names", daemon=True).start()
        except RuntimeError as error:
            self._threads -= 1
            if self._threads:
                return
            # Left there, it would be taken for one that is being looked up, for good.
            self._queued.remove(question)
            del self._asked[question]
            raise socket.gaierror(
                socket.EAI_AGAIN, f"no thread can be had to look up {question[0]}: {error}"
            ) from error

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queued:
                    self._threads -= 1
                    return
                question = self._queued.popleft()
            give = _looked_up(question)
            with self._lock:
                waiting = self._asked.pop(question)
            for loop, answer in waiting:
                with suppress(RuntimeError):  # its loop is closed, so no one waits
                    loop.call_soon_threadsafe(give, answer)


def _looked_up(question: Question) -> Callable[[asyncio.Future[list[AddressInfo]]], None]:
    """Return what brings the answer to one who waits."""
    host, port, family = question
    found: list[Any] = []
    failure: Exception | None = None
    try:
        found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except Exception as error:  # whatever it is, it belongs to those who wait
        failure = error

    def give(answer: asyncio.Future[list[AddressInfo]]) -> None:
        if answer.done():
            return
        if failure is None:
            answer.set_result(found)
        else:
            answer.set_exception(failure)

    return give


names: Final = Names()
"""Of this process: one bound on threads for all transports and clients."""
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=names.forget)


class Connecting(httpcore.AnyIOBackend):
    """Connects httpcore by our lookups: to the first address that answers, tried a quarter of a second apart."""

    addresses: Addresses | None = None
    """Judges where connections may go; None: anywhere."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        options, judge = None if socket_options is None else list(socket_options), self.addresses

        def to(address: str) -> Any:
            return super(Connecting, self).connect_tcp(address, port, timeout, local_address, options)

        try:
            async with asyncio.timeout(timeout):
                found = await _addresses(host, port)
                if judge is not None:
                    judge.check(host, found)
                return await first_connected(found, to, _close)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("no connection in time") from error


async def _addresses(host: str, port: int) -> list[str]:
    try:
        return [str(ip_address(host))]
    except ValueError:
        pass
    try:
        found = await names.look_up(host, port)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(str(error)) from error
    return list(dict.fromkeys(address_of(info) for info in found))


def address_of(info: AddressInfo) -> str:
    """Return the address, with its zone if it means something on one link only."""
    address = info[4]
    return f"{address[0]}%{address[3]}" if info[0] == socket.AF_INET6 and address[3] else str(address[0])


async def first_connected(
    addresses: Sequence[A], to: Callable[[A], Coroutine[Any, Any, C]], discard: Callable[[C], None]
) -> C:
    """Return the connection to the first address that answers, each tried a quarter of a second after the one before.

    `to` connects to one address; `discard` closes a connection that was made after another. Raises what the first
    address that failed raised.
    """
    if len(addresses) == 1:
        return await to(addresses[0])
    left, trying = deque(addresses), set[asyncio.Task[C]]()
    failure: BaseException | None = None

    def unused(task: asyncio.Task[C]) -> None:
        if not task.cancelled() and task.exception() is None:
            discard(task.result())

    try:
        while left or trying:
            if left:
                trying.add(asyncio.ensure_future(to(left.popleft())))
            done, _ = await asyncio.wait(
                trying, timeout=NEXT_ADDRESS_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            trying -= done
            for task in done:
                if (error := task.exception()) is None:
                    trying |= done - {task}
                    return task.result()
                failure = failure or error
        raise failure or OSError("the name has no address")
    finally:
        for task in trying:
            task.cancel()
            task.add_done_callback(unused)


_closing: Final = set[asyncio.Task[None]]()


def _close(stream: httpcore.AsyncNetworkStream) -> None:
    closing = asyncio.ensure_future(stream.aclose())
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


class HttpxConnections(httpx.AsyncHTTPTransport):
    """The connections of an `httpx.AsyncClient`, with our lookups; httpx has no option for that."""

    def __init__(self, verify: Any, limits: httpx.Limits) -> None:
        super().__init__(verify=verify, trust_env=False, limits=limits)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=verify or None,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=Connecting(),
        )
