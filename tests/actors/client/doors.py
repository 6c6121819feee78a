"""The ways to a scheduler that must not differ: its host's handle, a `Client` of its app in this process, a `Client` of
its server, and a `SyncClient` of that."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.engine_below import BELOW
from tests.in_process_transport import InProcessTransport
from tocsin import ActorHost, Client, Scheduler, SyncClient
from tocsin.cli.http_server import bind, serving
from tocsin.dispatch.clock import SystemDispatchClock
from tocsin.dispatch.testing import FakeReceiver
from tocsin.dispatch.transport import Answer

SECRET = "whsec_" + "dGhlIHNlY3JldCBvZiB0aGUgc3RhZ2UgOi0p"
TOKENS = ["ops:admin:secret-ops", "app:schedule+read:secret-app"]
DOORS = ("handle", "app", "server", "sync")
each_door = pytest.mark.parametrize("door", DOORS)


@dataclass
class House:
    """A host, and one of the ways to its scheduler `t`."""

    host: ActorHost
    jobs: Scheduler
    """By that way; of a `SyncClient` the same methods are awaited here."""
    url: str = ""


@asynccontextmanager
async def house(door: str, **options: Any) -> AsyncIterator[House]:
    receiver = FakeReceiver([SECRET], now_ms=SystemDispatchClock().now_ms, answer=lambda one: Answer(410, {}, b"gone"))
    options = {
        "origin": "https://origin.example",
        "secrets": [SECRET],
        "transport": InProcessTransport(receiver),
        **options,
    }
    async with ActorHost.open(BELOW.url(), **options) as host, asyncio.timeout(30), AsyncExitStack() as stack:
        found = House(host, host.scheduler("t"))
        app = host.asgi(tokens=TOKENS)
        if door == "app":
            client = Client("http://tocsin.example", token="secret-ops", transport=httpx.ASGITransport(app))
            found.jobs = (await stack.enter_async_context(client)).scheduler("t")
        elif door in ("server", "sync"):
            found.url = await stack.enter_async_context(serving(app, bind("127.0.0.1", 0)))
        if door == "server":
            client = await stack.enter_async_context(Client(found.url, token="secret-ops"))
            found.jobs = client.scheduler("t")
        elif door == "sync":
            blocking = SyncClient(found.url, token="secret-ops")
            stack.push_async_callback(asyncio.to_thread, blocking.close)
            awaited: Any = Awaited(blocking.scheduler("t"))
            found.jobs = awaited
        yield found


class Awaited:
    """A blocking object, whose methods are awaited: each call blocks a thread of its own."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        one = getattr(self._blocking, name)
        if name in ("schedules", "clock"):
            return Awaited(one)
        if name == "deferred":
            return lambda: AwaitedBlock(one())
        if not callable(one):
            return one
        if name == "list_all":
            return lambda **filters: _awaited(one, filters)
        if name == "changes":
            return lambda **since: _stepped(one(**since))
        return lambda *args, **kw: asyncio.to_thread(one, *args, **kw)


async def _awaited(listing: Callable[..., Iterator[Any]], filters: dict[str, Any]) -> AsyncIterator[Any]:
    for one in await asyncio.to_thread(lambda: list(listing(**filters))):
        yield one


async def _stepped(iterator: Iterator[Any]) -> AsyncGenerator[Any, None]:
    over = object()
    while (one := await asyncio.to_thread(next, iterator, over)) is not over:
        yield one


class AwaitedBlock:
    """A `SyncDeferred` as `async with` takes it."""

    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> Any:
        return await asyncio.to_thread(self._block.__enter__)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self._block.__exit__, *error)


def coroutines(kind: type) -> set[str]:
    """Return the names of a class's public coroutines."""
    return {name for name, one in inspect.getmembers(kind, inspect.iscoroutinefunction) if not name.startswith("_")}
