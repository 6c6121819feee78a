"""The door of a SQLite store: a Unix socket beside the file, and a token in its lock file."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakSet

from tocsin.actors.sharing.door import Door, DoorClosed, MayEnter
from tocsin.actors.sharing.neighbour import UnixNeighbour, is_same_user
from tocsin.actors.sharing.wire import release
from tocsin.errors import SettingsError, StoreLocked
from tocsin.storage.api import StoreProvider
from tocsin.storage.shared import shared_of
from tocsin.storage.sqlite.lock import holder_of
from tocsin.storage.sqlite.provider import SQLiteProvider

W = TypeVar("W", bound=asyncio.Protocol)
LONGEST: Final = 100
"""Bytes that the path of a socket may have on every system: 108 on Linux, 104 on others, with an end."""
BACKLOG: Final = 128
CONNECT_S: Final = 1.0
MODE: Final = 0o600


class UnixDoor:
    """`<file>.sock`, for processes of one user. The holder alone, which has the lock, makes and removes it."""

    def __init__(self, provider: SQLiteProvider) -> None:
        self._provider = provider
        self._lock = provider.lock.path
        self._path = provider.path.with_name(provider.path.name + ".sock")
        self._server: asyncio.Server | None = None
        self._inode = 0

    def prepare(self, token: str) -> None:
        self._provider.lock.token = token

    async def open(self, accept: Callable[[MayEnter], asyncio.Protocol]) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _short(self._path) as path:
                with suppress(FileNotFoundError):
                    os.unlink(path)  # of a holder that was killed: this process has the lock now
                listener.bind(path)
                os.chmod(path, MODE)  # nobody can connect before it listens
                self._inode = os.stat(path).st_ino
            listener.listen(BACKLOG)
            listener.setblocking(False)
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: accept(_may_enter), sock=listener
            )
        except BaseException:
            listener.close()
            raise
        _listening.add(listener)

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        with suppress(OSError), _short(self._path) as path:
            if os.stat(path).st_ino == self._inode:
                os.unlink(path)

    def token(self) -> str:
        pid, token = holder_of(self._lock)
        if pid is None:
            raise DoorClosed(f"{self._lock} names no process")
        if not token:
            raise StoreLocked(
                f"{self._provider.path} is in use by process {pid}, which shares it with no other (`tocsin serve` and "
                "share=False do not): stop it, use another file, or talk to it over HTTP",
                pid=str(pid),
                shared=False,
            )
        return token

    def holder(self) -> UnixNeighbour | None:
        pid, _ = holder_of(self._lock)
        return None if pid is None else UnixNeighbour.that_has(self._lock, pid)

    async def enter(self, make: Callable[[], W]) -> tuple[W, UnixNeighbour]:
        pid, _ = holder_of(self._lock)
        transport, neighbour = None, None
        try:
            with _short(self._path) as path:
                async with asyncio.timeout(CONNECT_S):
                    # By its path: uvloop closes the descriptor of a socket that it is given, and that is lost at once,
                    # without telling the socket, which would close whatever has that number by then.
                    transport, _ = await asyncio.get_running_loop().create_unix_connection(asyncio.Protocol, path)
            connected = transport.get_extra_info("socket")
            if transport.is_closing():
                raise DoorClosed(f"{self._path}: it was closed at once")
            if not is_same_user(connected):
                raise DoorClosed(f"{self._path} is of another user")
            neighbour = UnixNeighbour(connected, pid or 0)
            link = make()
            transport.set_protocol(link)
            link.connection_made(transport)  # the first word is the link's, so nothing was heard until now
        except BaseException as error:
            if transport is not None:
                transport.abort()
            if neighbour is not None:
                neighbour.forget()
            if isinstance(error, (OSError, TimeoutError)):
                raise DoorClosed(f"{self._path}: {error or type(error).__name__}") from error
            raise
        return link, neighbour


def door_of(store: object, provider: StoreProvider, share: bool | Door | None, dispatch: bool) -> Door | None:
    """Return the door of a store that is to be shared: one of SQLite that a URL names, of a host that dispatches by
    itself, unless told otherwise. A door that is given, as simulations do, is taken as it is. SettingsError if the
    store is to be shared and cannot."""
    if share is not None and not isinstance(share, bool):
        return share
    if shared_of(provider) is not None:
        return None  # its hosts meet in the store, and all of them are equal
    if share is None:
        share = dispatch and isinstance(store, str) and isinstance(provider, SQLiteProvider)
    if not share:
        return None
    if not isinstance(provider, SQLiteProvider):
        raise SettingsError("share=True is for SQLite stores: nothing else has a file beside which processes can meet")
    return UnixDoor(provider)


def _may_enter(transport: asyncio.BaseTransport) -> bool:
    connected = transport.get_extra_info("socket")
    return connected is not None and is_same_user(connected)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a path that fits a socket's address, whatever the length of the real one is."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
    elif Path("/proc/self/fd").is_dir() and len(os.fsencode(path.name)) <= LONGEST - 24:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{folder}/{path.name}"
        finally:
            os.close(folder)
    else:
        yield str(_folder_of_mine() / f"{blake2b(os.fsencode(path), digest_size=12).hexdigest()}.sock")


def _folder_of_mine() -> Path:
    """Return a folder for sockets, with a short name, that only this user can write to; OSError if somebody else has
    it."""
    folder = Path(f"/tmp/tocsin-{os.geteuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(f"{folder} is not a folder of this user alone")
    return folder


_listening: WeakSet[socket.socket] = WeakSet()


def _forked() -> None:
    release(each.fileno() for each in list(_listening))


os.register_at_fork(after_in_child=_forked)
