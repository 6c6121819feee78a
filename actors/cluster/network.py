"""The seam between hosts: where others reach this one, and how it reaches them; and that seam over TCP.

Without an address a host listens on loopback, and only hosts of the same machine and network namespace call it there.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar
from urllib.parse import SplitResult, urlsplit
from weakref import WeakSet

from tocsin.actors.sharing.door import MayEnter
from tocsin.actors.sharing.wire import release
from tocsin.errors import SettingsError

W = TypeVar("W", bound=asyncio.Protocol)
CONNECT_S: Final = 1.0
BACKLOG: Final = 128
LOOPBACK: Final = "127.0.0.1"
SCHEME: Final = "tcp"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = "/proc/self/ns/net"


class Network(Protocol):
    """Links to other hosts of the store."""

    async def listen(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> str | None:
        """Let other hosts in; return the URL at which they reach this one, None if they do not."""
        ...

    async def close(self) -> None:
        """Let nobody in any more."""
        ...

    def may_reach(self, url: str) -> bool:
        """Return whether it is worth a try to connect to this URL from here."""
        ...

    async def connect(self, url: str, make: Callable[[], W]) -> W:
        """Open a link; OSError if nobody answers there in time."""
        ...


class NoNetwork:
    """No links at all: everything between hosts goes by mail."""

    async def listen(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> str | None:
        return None

    async def close(self) -> None: ...

    def may_reach(self, url: str) -> bool:
        return False

    async def connect(self, url: str, make: Callable[[], W]) -> W:
        raise ConnectionError("this host has no links to others")


class TcpNetwork:
    """Links over TCP. `address` is `host:port`, at which other machines reach this host; port 0 is any that is free.

    None: loopback, for hosts of this machine.
    """

    def __init__(self, address: str | None = None) -> None:
        self._host, self._port = (LOOPBACK, 0) if address is None else _parsed(address)
        self._machine = this_machine() if ipaddress_of(self._host) in (None, LOOPBACK) and address is None else ""
        self._server: asyncio.Server | None = None

    async def listen(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> str | None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        family, *_, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        listener.setblocking(False)
        _listening.add(listener)
        self._server = await loop.create_server(lambda: accept(lambda _: True), sock=listener)
        port = listener.getsockname()[1]
        place = f"{SCHEME}://{_in_url(self._host)}:{port}"
        return f"{place}/{self._machine}" if self._machine else place

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def may_reach(self, url: str) -> bool:
        given = _split(url)
        if given is None:
            return False
        of = given.path.strip("/")
        return not of or of == this_machine()

    async def connect(self, url: str, make: Callable[[], W]) -> W:
        given = _split(url)
        if given is None or given.hostname is None or given.port is None:
            raise ConnectionError(f"{url} is no address of a host")
        async with asyncio.timeout(CONNECT_S):
            transport, link = await asyncio.get_running_loop().create_connection(make, given.hostname, given.port)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return link


def this_machine() -> str:
    """Return what hosts that reach each other over loopback have in common: one start of one computer, and one
    namespace of its network."""
    boot = socket.gethostname()
    with suppress(OSError):
        boot = _BOOT.read_text("ascii").strip()
    with suppress(OSError):
        boot += "-" + "".join(filter(str.isdigit, os.readlink(_NAMESPACE)))
    return boot


def ipaddress_of(host: str) -> str | None:
    """Return an IP address as it is usually written; None for a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def _parsed(address: str) -> tuple[str, int]:
    given = _split(f"{SCHEME}://{address}")
    if given is None or not given.hostname or given.port is None or given.path:
        raise SettingsError(f"the address for other hosts must be host:port, such as 10.0.0.5:7411, not {address!r}")
    known = ipaddress_of(given.hostname)
    if known is not None and ipaddress.ip_address(known).is_unspecified:
        raise SettingsError(
            f"the address for other hosts is {address!r}, which is no place to call: name the address at which they "
            "reach this host"
        )
    return given.hostname, given.port


def _split(url: str) -> SplitResult | None:
    try:
        given = urlsplit(url)
        return given if given.scheme == SCHEME and given.hostname and given.port is not None else None
    except ValueError:
        return None


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_listening: WeakSet[socket.socket] = WeakSet()


def _forked() -> None:
    release(each.fileno() for each in list(_listening))


os.register_at_fork(after_in_child=_forked)
